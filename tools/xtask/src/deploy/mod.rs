//! `cargo xtask deploy-check`: what runs a coordinator elsewhere, checked as far as it can be
//! without Kubernetes and without a container engine.
//!
//! The chart: linted, rendered for each case and compared with the file beside it, judged by the
//! schemas of several versions of Kubernetes, and its configuration read by the program. Values
//! that must be refused are. The Dockerfiles and the compose file are linted.

mod chart;
mod tools;

use std::process::Command;

use anyhow::Result;

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::tree::root;

use self::tools::Tools;

const DOCKERFILES: [&str; 2] = ["deploy/container/Dockerfile", "deploy/compose/shop.Dockerfile"];
const COMPOSE: &str = "deploy/compose/compose.yaml";

/// Checks everything. `UPDATE_GOLDENFILES=1` writes what the chart renders.
pub(crate) fn check(interrupts: &Interrupts) -> Result<()> {
    let tools = Tools::install(interrupts)?;
    chart::check(interrupts, &tools)?;
    for file in DOCKERFILES {
        interrupts.run(in_root(&mut tools.python("hadolint")).arg(file))?;
    }
    let mut schema = tools.python("check-jsonschema");
    schema.args(["--builtin-schema", "vendor.compose-spec", COMPOSE]);
    interrupts.run(in_root(&mut schema))?;
    say("not run here: no image is built, and nothing is installed into a cluster");
    Ok(())
}

/// Writes what the chart renders of each case, as for another version.
pub(crate) fn render(interrupts: &Interrupts) -> Result<()> {
    chart::render(interrupts, &Tools::install(interrupts)?)
}

fn in_root(command: &mut Command) -> &mut Command {
    command.current_dir(root())
}
