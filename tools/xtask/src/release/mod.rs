//! `cargo xtask release VERSION`: everything of a release up to publishing.
//!
//! It raises the version, joins the files of `changes/` into the changelog, compares the public
//! items with the last release, and packages every crate as the registry would get it. It commits,
//! tags and publishes nothing: it prints the commands for that.

mod changelog;
mod version;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::deploy;
use crate::interrupt::Interrupts;
use crate::promises;
use crate::say::say;
use crate::semver;
use crate::test::cargo;
use crate::tree::{root, source_files};

use self::version::Version;

const CHANGELOG: &str = "CHANGELOG.md";
const CHANGES: &str = "changes/";
/// Files that name the version; `Cargo.lock` follows `Cargo.toml`.
const VERSIONED: [&str; 4] = [
    "Cargo.toml",
    "deploy/helm/handfast/Chart.yaml",
    "deploy/compose/compose.yaml",
    "docs/operate/install.md",
];

/// The version, and whether files are written.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The version, such as 0.2.0.
    version: Version,
    /// The date of the release, as in 2026-11-27. Default: today's.
    #[arg(long)]
    date: Option<String>,
    /// Change no file: show the section of the changelog, and package the crates as they are.
    #[arg(long)]
    dry_run: bool,
    /// Do not build the packages, only make them.
    #[arg(long)]
    no_verify: bool,
}

/// How far packages are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Each is made, so that its manifest and its dependencies fit the registry.
    Made,
    /// Each is also built from the package, which takes as long as a build from nothing.
    Built,
}

/// Prepares the release.
pub(crate) fn prepare(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let current: Version = env!("CARGO_PKG_VERSION").parse().map_err(anyhow::Error::msg)?;
    let version = options.version;
    check_version(interrupts, current, version)?;
    let date = match &options.date {
        Some(date) => date.clone(),
        None => interrupts.output(Command::new("date").args(["--utc", "+%F"]))?.trim().to_owned(),
    };
    let files = source_files()?;
    let changes = changelog::read_changes(&files)?;
    let text = fs::read_to_string(root().join(CHANGELOG)).context(CHANGELOG)?;
    let text = changelog::with_release(&text, version, &date, &changes)?;
    if options.dry_run {
        say(changelog::section(&text, version).unwrap_or_default());
    } else {
        check_clean(interrupts)?;
        fs::write(root().join(CHANGELOG), text).context(CHANGELOG)?;
        for change in &changes {
            fs::remove_file(root().join(&change.path)).with_context(|| change.path.clone())?;
        }
        raise(interrupts, current, version)?;
        // What was promised before is among it, or tidy would have complained.
        let promises: Vec<String> = promises::collect(&files).into_iter().collect();
        fs::write(root().join(promises::LIST), promises.join("\n") + "\n")?;
    }
    semver::check(interrupts, &semver::Options::default())?;
    package(interrupts, if options.no_verify { Depth::Made } else { Depth::Built })?;
    print_commands(version);
    Ok(())
}

fn check_version(interrupts: &Interrupts, current: Version, version: Version) -> Result<()> {
    if version < current {
        bail!("{version} is below {current}, the version of Cargo.toml");
    }
    let mut git = Command::new("git");
    git.args(["tag", "--list", &format!("v{version}")]).current_dir(root());
    if !interrupts.output(&mut git)?.trim().is_empty() {
        bail!("v{version} is tagged already");
    }
    Ok(())
}

fn check_clean(interrupts: &Interrupts) -> Result<()> {
    let mut git = Command::new("git");
    let changed = interrupts.output(git.args(["status", "--porcelain"]).current_dir(root()))?;
    if changed.trim().is_empty() {
        return Ok(());
    }
    bail!("the tree has changes that are not committed:\n{changed}")
}

/// Raises the version wherever it is written, and renders the chart's cases with it.
fn raise(interrupts: &Interrupts, current: Version, version: Version) -> Result<()> {
    if current == version {
        return Ok(());
    }
    for path in VERSIONED {
        let path = root().join(path);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let raised = version::replace(&text, current, version);
        fs::write(&path, raised).with_context(|| path.display().to_string())?;
    }
    // Writes the members' versions, and no other, to the lock file.
    let mut update = cargo();
    interrupts.run(update.args(["update", "--workspace", "--quiet"]).current_dir(root()))?;
    deploy::render(interrupts)
}

/// Packages each crate that is published, in the order of their dependencies.
pub(crate) fn package(interrupts: &Interrupts, depth: Depth) -> Result<()> {
    let mut publish = cargo();
    publish.args(["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"]);
    if depth == Depth::Made {
        publish.arg("--no-verify");
    }
    interrupts.run(publish.current_dir(root()))
}

fn print_commands(version: Version) {
    let commands = [
        format!("git add --all && git commit --message \"Release {version}\""),
        "cargo xtask ci && cargo xtask deploy-check && cargo xtask dist".to_owned(),
        format!("git tag --annotate v{version} --message \"Handfast {version}\""),
        format!("git push origin main v{version}"),
        "cargo publish --workspace --locked".to_owned(),
        "docker build --file deploy/container/Dockerfile --tag REGISTRY/handfast:".to_owned()
            + &version.to_string()
            + " .",
        "helm package deploy/helm/handfast".to_owned(),
    ];
    say("what is left to do by hand, in this order:");
    for command in commands {
        say(format_args!("  {command}"));
    }
}
