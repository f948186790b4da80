//! The program as a person runs it, on each database: the outcome, the proof and the crash.

use anyhow::Result;

use handfast_example_shop::trial::Trial;

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_order-payment-saga"));

handfast_example_shop::trials!(sqlite, postgres, mysql);

#[test]
fn the_report_has_its_keys_and_no_others() -> Result<()> {
    PROGRAM.has_its_keys_and_no_others("sqlite")
}
