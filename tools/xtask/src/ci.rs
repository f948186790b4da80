//! Everything that a change must pass.

use anyhow::Result;

use crate::alerts;
use crate::console_test;
use crate::differential;
use crate::docs;
use crate::driver_features;
use crate::interop;
use crate::interrupt::Interrupts;
use crate::program::Programs;
use crate::release::{self, Depth};
use crate::semver;
use crate::services::RunningServers;
use crate::sim;
use crate::test::{cargo, run_tests};
use crate::tidy;

/// How many seeds are simulated.
const SEEDS: &str = "2000";
/// How many statements are compared with SQLite's pre-update hook.
const HOOK_CASES: usize = 5_000;
/// How often the example's coordinator is killed in the run that kills it.
const CRASHES: &str = "2";
/// How often a relay or consumer of the choreography is killed, over each broker.
const KILLS: &str = "12";

/// Buyers and units of the sale: enough for each segment to be found exhausted.
const SALE: [&str; 4] = ["--buyers", "200", "--units", "40"];

/// The crates that have a feature for each database.
const BY_DATABASE: [&str; 2] = ["handfast", "handfast-sea-orm"];
/// Their feature sets: no database, or each alone.
const DATABASES: [&str; 4] = ["", "mysql", "postgres", "sqlite"];

/// Runs all checks, the quick ones first, so that a slip is reported early.
pub(crate) fn run_checks(interrupts: &Interrupts, skip_tests: bool) -> Result<()> {
    interrupts.run(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check_tree()?;
    docs::build(interrupts, &docs::Options::default())?;
    alerts::check(interrupts)?;
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
    driver_features::check(interrupts)?;
    check_features(interrupts)?;
    release::package(interrupts, Depth::Made)?;
    semver::check(interrupts, &semver::Options::default())?;
    if !skip_tests {
        run_tests(interrupts, &[])?;
    }
    let programs = Programs::build(interrupts)?;
    interop::run_clients(interrupts, programs.command("handfast-interop")?, &["--short"])?;
    sim::run_seeds(interrupts, programs.command("handfast-sim")?, &["--seeds", SEEDS])?;
    console_test::run_scenes::<&str>(interrupts, &[])?;
    run_examples(interrupts, programs)?;
    // Last: it builds everything again that depends on SQLite's driver.
    differential::run_with_hook(interrupts, HOOK_CASES)
}

/// Builds the client with each single database: none may need a dependency that only another has.
fn check_features(interrupts: &Interrupts) -> Result<()> {
    for package in BY_DATABASE {
        for database in DATABASES {
            let mut clippy = cargo();
            clippy.args(["clippy", "-p", package, "--no-default-features", "--features", database]);
            interrupts.run(clippy.args(["--", "-D", "warnings"]))?;
        }
    }
    Ok(())
}

/// Runs the examples at their own small size: in AT mode on each database, once with a coordinator
/// that dies, and with three that share the database server and of which the leader dies; in the
/// other modes where they differ; as a choreography by each broker, with relays and consumers that
/// die; the sale on each database. Their tests do the rest.
fn run_examples(interrupts: &Interrupts, programs: Programs) -> Result<()> {
    let services = RunningServers::start(interrupts)?;
    let run = |name: &str, arguments: &[&str]| {
        let mut example = programs.command(name)?;
        interrupts.run(example.args(["--concurrency", "8"]).args(arguments))
    };
    run("order-payment", &[])?;
    run("order-payment", &["--crash-coordinator", CRASHES])?;
    run("order-payment-tcc", &[])?;
    run("order-payment-saga", &[])?;
    run("order-payment-outbox", &[])?;
    for broker in services.broker_urls()? {
        let killed = ["--broker", &broker, "--kill-workers", KILLS];
        run("order-payment-outbox", &killed)?;
    }
    run("flash-sale", &SALE)?;
    run_recipes(interrupts, programs, &services)?;
    for url in services.sql_urls()? {
        let sale = [&SALE[..], &["--database", &url]].concat();
        run("flash-sale", &sale)?;
        run("order-payment", &["--database", &url])?;
        let leaders = ["--coordinators", "3", "--crash-coordinator", CRASHES, "--database", &url];
        run("order-payment", &leaders)?;
        run("order-payment-xa", &["--database", &url])?;
    }
    Ok(())
}

/// Runs the recipes for locks that are wrong: they must fail, and ours must not.
fn run_recipes(
    interrupts: &Interrupts,
    programs: Programs,
    services: &RunningServers,
) -> Result<()> {
    let mut recipes = programs.command("seed-defects")?;
    recipes.args(["all", "--redis", &services.redis_url()?]);
    interrupts.run(recipes.args(["--zookeeper", &services.zookeeper_url()?]))
}
