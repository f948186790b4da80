//! Trials of what was made, each in namespaces of its own: the machine is left as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use crate::interrupt::Interrupts;
use crate::tree::root;

/// Installs, starts, upgrades and removes the Debian package.
pub(super) fn install_package(
    interrupts: &Interrupts,
    package: &Path,
    upgrade: &Path,
) -> Result<()> {
    run(interrupts, "deploy/debian/trial.sh", &[package, upgrade])
}

/// Runs the static program in the root of the container image.
pub(super) fn run_in_image(interrupts: &Interrupts, programs: &Path) -> Result<()> {
    run(interrupts, "deploy/container/trial.sh", &[programs])
}

/// Runs a script of the tree with mounts, network and processes of its own. Its last argument is a
/// folder to mount in.
fn run(interrupts: &Interrupts, script: &str, arguments: &[&Path]) -> Result<()> {
    if !Uid::effective().is_root() {
        bail!("{script} mounts a file system: call it as root, or with --skip-trial");
    }
    let space = space()?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    unshare.arg(root().join(script)).args(arguments).arg(&space);
    let ended = interrupts.run(&mut unshare);
    fs::remove_dir(&space).context("removing the trial's folder")?;
    ended
}

/// Makes a folder below the temporary one, which servers of other accounts may enter.
fn space() -> Result<PathBuf> {
    let space = tempfile::Builder::new().prefix("handfast-trial").tempdir()?;
    Ok(space.keep())
}
