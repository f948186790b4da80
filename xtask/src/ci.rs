//! Everything that a change must pass.

use std::process::Command;

use anyhow::Result;

use crate::differential;
use crate::interop;
use crate::interrupt::Interrupts;
use crate::services::Services;
use crate::sim;
use crate::test::{cargo, run_tests};
use crate::tidy;

/// How many seeds are simulated.
const SEEDS: &str = "2000";
/// How many statements are held against SQLite's pre-update hook.
const HOOK_CASES: usize = 5_000;
/// How often the example's coordinator is killed in the run that kills it.
const CRASHES: &str = "2";
/// How often a relay or consumer of the choreography is killed, over each broker.
const KILLS: &str = "12";

/// Buyers and units of the sale: enough for each segment to be found exhausted.
const SALE: [&str; 4] = ["--buyers", "200", "--units", "40"];

/// What the client library may be built with: no database, or each alone.
const DATABASES: [&str; 4] = ["", "mysql", "postgres", "sqlite"];

/// Runs the quick checks first, so that a slip is told early.
pub(crate) fn run_checks(interrupts: &Interrupts, skip_tests: bool) -> Result<()> {
    interrupts.run(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check_tree()?;
    interrupts.run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    interrupts.run(
        cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    check_features(interrupts)?;
    if !skip_tests {
        run_tests(interrupts, &[])?;
    }
    interop::run_clients(interrupts, &["--short".to_owned()])?;
    sim::run_seeds(interrupts, &["--seeds".to_owned(), SEEDS.to_owned()])?;
    differential::run_with_hook(interrupts, HOOK_CASES)?;
    run_examples(interrupts)
}

/// What one database needs must not lean on another's being there.
fn check_features(interrupts: &Interrupts) -> Result<()> {
    for database in DATABASES {
        let mut clippy = cargo();
        clippy.args(["clippy", "-p", "handfast", "--no-default-features", "--features", database]);
        interrupts.run(clippy.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Runs the examples at their own small size: in AT mode on each database, and once with a
/// coordinator that dies; in the other modes where they differ; as a choreography by each broker,
/// with relays and consumers that die; the sale on each database. Their tests do the rest.
fn run_examples(interrupts: &Interrupts) -> Result<()> {
    let services = Services::start(interrupts)?;
    interrupts.run(&mut example("order-payment", &[]))?;
    interrupts.run(&mut example("order-payment", &["--crash-coordinator", CRASHES]))?;
    interrupts.run(&mut example("order-payment-tcc", &[]))?;
    interrupts.run(&mut example("order-payment-saga", &[]))?;
    interrupts.run(&mut example("order-payment-outbox", &[]))?;
    for broker in services.broker_urls()? {
        let killed = ["--broker", &broker, "--kill-workers", KILLS];
        interrupts.run(&mut example("order-payment-outbox", &killed))?;
    }
    interrupts.run(&mut example("flash-sale", &SALE))?;
    interrupts.run(&mut recipes(&services.redis_url()?, &services.zookeeper_url()?))?;
    for url in services.sql_urls()? {
        let sale = [&SALE[..], &["--database", &url]].concat();
        interrupts.run(&mut example("flash-sale", &sale))?;
        interrupts.run(&mut example("order-payment", &["--database", &url]))?;
        interrupts.run(&mut example("order-payment-xa", &["--database", &url]))?;
    }
    Ok(())
}

/// Recipes for locks that are wrong: they must fail, and ours must not.
fn recipes(redis: &str, zookeeper: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "seed-defects", "--", "all", "--redis", redis]);
    command.args(["--zookeeper", zookeeper]);
    command
}

fn example(package: &str, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", package, "--", "--concurrency", "8"]);
    command.args(arguments);
    command
}
