//! Bounded fuzzing. The targets stand outside the workspace, since they need a nightly compiler.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::test::cargo;
use crate::tree::root;

/// Where the targets are.
const FOLDER: &str = "quality/fuzz";

/// Runs every target for `seconds`. The first input that breaks one ends the run.
pub(crate) fn run_targets(interrupts: &Interrupts, seconds: u32) -> Result<()> {
    check_nightly()?;
    install_cargo_fuzz(interrupts)?;
    let targets = targets()?;
    say(format_args!("{} targets, {seconds} s each: {}", targets.len(), targets.join(", ")));
    for target in &targets {
        let time = format!("-max_total_time={seconds}");
        let mut command = cargo_fuzz("run");
        command.args([target, "--", &time, "-rss_limit_mb=2048", "-max_len=65536"]);
        interrupts.run(&mut command)?;
    }
    Ok(())
}

/// `cargo +nightly fuzz` with a command of its own. The variables of the running cargo would pin
/// its toolchain.
fn cargo_fuzz(subcommand: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", subcommand, "--fuzz-dir", FOLDER]).current_dir(root());
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    command
}

fn check_nightly() -> Result<()> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--version"]).env_remove("RUSTUP_TOOLCHAIN");
    match quietly(&mut command) {
        true => Ok(()),
        false => bail!(
            "fuzzing needs a nightly compiler, which is not here: `rustup toolchain install \
             nightly` brings one"
        ),
    }
}

fn install_cargo_fuzz(interrupts: &Interrupts) -> Result<()> {
    if quietly(&mut cargo_fuzz("list")) {
        return Ok(());
    }
    say("cargo-fuzz is missing: installing it");
    interrupts.run(cargo().args(["install", "--locked", "cargo-fuzz"]))
}

fn targets() -> Result<Vec<String>> {
    let output = cargo_fuzz("list").output().context("running cargo fuzz list")?;
    if !output.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("a target's name is not UTF-8")?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn quietly(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
