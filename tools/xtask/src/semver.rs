//! Comparison of the crates' public items with those of the last release, by cargo-semver-checks.
//!
//! The baseline is a commit, since what is published may lag behind the tag.

use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::test::cargo;
use crate::tree::root;

/// The version that is installed where the tool is missing.
const VERSION: &str = "0.51.0";
/// The crates whose items applications use. The others say that theirs may change.
const STABLE: [&str; 2] = ["handfast", "handfast-locks"];

/// The commit to compare with.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// A commit. Default: the last tag of a release that leads to this one.
    #[arg(long, value_name = "COMMIT")]
    baseline: Option<String>,
    /// Compare only this crate; any crate with a library.
    #[arg(long, short, value_name = "CRATE")]
    package: Option<String>,
}

/// Compares, or says that there is nothing to compare with.
pub(crate) fn check(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let baseline = match &options.baseline {
        Some(commit) => commit.clone(),
        None => match last_release(interrupts)? {
            Some(tag) => tag,
            None => {
                say("semver: there is no release yet, so every item may change");
                return Ok(());
            }
        },
    };
    install(interrupts)?;
    let packages = options.package.as_deref().map_or(STABLE.to_vec(), |package| vec![package]);
    for package in packages {
        let mut check = cargo();
        check.args(["semver-checks", "--baseline-rev", &baseline, "--package", package]);
        interrupts.run(check.current_dir(root()))?;
    }
    Ok(())
}

fn last_release(interrupts: &Interrupts) -> Result<Option<String>> {
    let mut git = Command::new("git");
    git.args(["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"]);
    let tags = interrupts.output(git.current_dir(root()))?;
    Ok(tags.lines().next().map(str::to_owned))
}

fn install(interrupts: &Interrupts) -> Result<()> {
    let mut version = cargo();
    version.args(["semver-checks", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    say("cargo-semver-checks is missing: installing it");
    let mut install = cargo();
    install.args(["install", "--locked", "cargo-semver-checks", "--version", VERSION]);
    interrupts.run(&mut install)
}
