//! Real orders as a choreography of events: nobody leads, each service answers what it hears.
//!
//! ```text
//! order service            stock service             account service
//!  placed ─────────────────▶ deducts the lines
//!                            taken ───────────────────▶ debits the customer
//!  confirms ◀────────────────────────────────────────── paid
//!                            puts the units back ◀───── no funds
//!  cancels ◀──────────────── out of stock, put back
//! ```
//!
//! Each answer is an event in the outbox of the service's own database, written by the local
//! transaction that it tells of; relays take it to the broker, inboxes let it take effect once. The
//! order itself is placed in a global transaction, which holds its event until the commit. At the
//! end the run proves that nothing was lost, and that each event was taken once and in the order of
//! its key.

mod account;
mod broker;
mod fact;
mod journal;
mod order;
mod stock;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use handfast_example_shop::database::Databases;
use handfast_example_shop::services::Services;
use handfast_example_shop::{Books, Example, Leftover, Site};

use crate::broker::Broker;

/// Every service by events.
struct OrderPaymentOutbox {
    flags: Flags,
}

/// The flags that the other examples do not have.
#[derive(Debug, Args)]
struct Flags {
    /// Takes the events from service to service: `in-process`, or the URL of a Redis server.
    #[arg(long, value_name = "in-process|URL", default_value = "in-process")]
    broker: String,
}

impl Example for OrderPaymentOutbox {
    const NAME: &'static str = "order-payment-outbox";
    const ABOUT: &'static str = "Run orders through services that know of each other by events \
        alone, and prove that nothing was lost, done twice or done out of order";
    const BOOKS: Books = Books {
        sold: "SELECT line.product_id, line.quantity FROM order_line line \
               JOIN customer_order placed ON placed.order_id = line.order_id \
               WHERE placed.state = 'confirmed'",
        paid: "SELECT customer_id, total_cents FROM customer_order WHERE state = 'confirmed'",
        ..Books::PLAIN
    };

    fn add_flags(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn read_flags(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.flags = Flags::from_arg_matches(matches)?;
        Ok(())
    }

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        let broker = Broker::connect(&self.flags.broker, site.databases.run()).await?;
        // Those who listen come first: a topic that nobody has subscribed to is not published to.
        let stock = stock::start(site, &broker).await?;
        let account = account::start(site, &broker).await?;
        let order = order::start(site, &broker).await?;
        Ok(Services { order, stock, account })
    }

    async fn leftovers(&self, databases: &Databases) -> Result<Vec<Leftover>> {
        const UNDELIVERED: &str = "SELECT COUNT(*) FROM event_outbox WHERE status NOT IN (2, 3)";
        const OPEN: &str = "SELECT COUNT(*) FROM customer_order WHERE state = 'placed'";
        let mut undelivered = 0;
        for pool in [&databases.order, &databases.stock, &databases.account] {
            undelivered += pool.count(UNDELIVERED).await?;
        }
        Ok(vec![
            Leftover {
                what: "orders without an end left",
                count: databases.order.count(OPEN).await?,
            },
            Leftover { what: "events not published left", count: undelivered },
            Leftover {
                what: "keys with events not taken once and in order",
                count: journal::keys_out_of_order(databases).await?,
            },
        ])
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags { broker: String::new() };
    handfast_example_shop::main(OrderPaymentOutbox { flags }).await
}
