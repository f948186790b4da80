//! Real orders through global transactions in AT mode: three services, three databases, one
//! coordinator.
//!
//! The order service begins one global transaction per order, writes the order, has the stock
//! service deduct the lines and the account service debit the customer, all over HTTP and in
//! ordinary SQL; a refusal anywhere rolls everything back. At the end the run proves that nothing
//! was lost. The services are those of `examples/shop`; this says only that their databases join in
//! AT mode.

use std::process::ExitCode;

use anyhow::Result;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use handfast_example_shop::database::SqlMode;
use handfast_example_shop::services::{Services, play};
use handfast_example_shop::{Example, Site};

/// Every service in AT mode.
#[derive(Default)]
struct OrderPayment {
    flags: Flags,
}

/// The flags that the other examples do not have.
#[derive(Debug, Default, Args)]
struct Flags {
    /// Runs each service as a process of its own.
    #[arg(long)]
    processes: bool,
}

impl Example for OrderPayment {
    const NAME: &'static str = "order-payment";
    const ABOUT: &'static str = "Run orders through global transactions across an order, a stock \
        and an account service, and prove that nothing was lost";

    fn add_flags(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn read_flags(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.flags = Flags::from_arg_matches(matches)?;
        Ok(())
    }

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        if self.flags.processes {
            Services::start_in_processes(site, SqlMode::At).await
        } else {
            Services::start_in_sql(site, SqlMode::At).await
        }
    }

    async fn work(&self, part: &str) -> Result<()> {
        play(part).await
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    handfast_example_shop::main(OrderPayment::default()).await
}
