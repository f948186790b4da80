//! The program as a person runs it: every recipe fails, and ours does not.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

fn play(arguments: &[&str]) -> Result<Value> {
    let server = |variable: &str| {
        let url = std::env::var(variable);
        url.with_context(|| format!("{variable} is not set: run `cargo xtask test`"))
    };
    let (redis, zookeeper) = (server("HANDFAST_TEST_REDIS")?, server("HANDFAST_TEST_ZOOKEEPER")?);
    let mut command = Command::new(env!("CARGO_BIN_EXE_seed-defects"));
    let output = command
        .args(["--json", "--redis", &redis, "--zookeeper", &zookeeper])
        .args(arguments)
        .output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    serde_json::from_str(out.trim()).with_context(|| out.into_owned())
}

#[test]
fn every_recipe_fails_and_ours_does_not() -> Result<()> {
    let report = play(&["all"])?;
    let recipes = report["recipes"].as_array().context("recipes")?;
    ensure!(recipes.len() == 14, "{report}");
    for (number, recipe) in (1..).zip(recipes) {
        ensure!(recipe["number"] == number, "{recipe}");
        ensure!(recipe["as_written"]["is_right"] == false, "{recipe}");
        ensure!(recipe["ours"]["is_right"] == true, "{recipe}");
    }
    Ok(())
}

#[test]
fn one_is_played_alone() -> Result<()> {
    let report = play(&["below-zero"])?;
    ensure!(report["recipes"].as_array().context("recipes")?.len() == 1, "{report}");
    ensure!(report["recipes"][0]["number"] == 13, "{report}");
    Ok(())
}
