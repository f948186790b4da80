//! `handfast demo`: the flow of the order/payment examples, from an installed program.
//!
//! Services, orders and proof are those of the examples; this says only that their databases join
//! in AT mode, as `examples/order-payment` does.

use handfast_example_shop::database::SqlMode;
use handfast_example_shop::services::Services;
use handfast_example_shop::{Arguments, Ended, Example, Site};
use handfast_server::cli::{CliFailure, Exit};

/// Every service in AT mode.
struct Demo;

impl Example for Demo {
    const NAME: &'static str = "demo";
    const ABOUT: &'static str = "Run orders through global transactions across an order, a stock \
        and an account service, and prove that nothing was lost";
    const WORDS: &'static [&'static str] = &["demo"];

    async fn start(&self, site: &Site<'_>) -> anyhow::Result<Services> {
        Services::start_in_sql(site, SqlMode::At).await
    }
}

/// Runs the orders and prints the proof.
pub(crate) fn run(arguments: Arguments) -> Result<(), CliFailure> {
    let failed = |error: String| CliFailure::new(Exit::Failed, "HF-CLI-DEMO", error);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let orders = handfast_example_shop::run(&Demo, &arguments);
    match runtime.block_on(handfast_example_shop::observed(orders)) {
        Ok(Ended::Proven) => Ok(()),
        Ok(Ended::Disproved) => Err(failed("the proof does not hold: see the table".to_owned())),
        Err(error) => Err(failed(format!("{error:#}"))),
    }
}
