//! `cargo xtask deploy-check`: what runs a coordinator elsewhere, checked as far as it can be
//! without Kubernetes and without a container engine.
//!
//! The chart: linted, rendered for each case and compared with the file beside it, judged by the
//! schemas of several versions of Kubernetes, and its configuration read by the program. Values
//! that must be refused are. The Dockerfiles and the compose file are linted.

mod chart;
mod tools;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::tree::{SourceFile, root, source_files};

use self::tools::Tools;

const DOCKERFILES: [&str; 2] = ["deploy/container/Dockerfile", "deploy/compose/shop.Dockerfile"];
const COMPOSE: &str = "deploy/compose/compose.yaml";
const DASHBOARD: &str = "deploy/compose/grafana/handfast.json";
const METRICS: &str = "docs/reference/metrics.md";

/// Checks everything. `UPDATE_GOLDENFILES=1` writes what the chart renders.
pub(crate) fn check(interrupts: &Interrupts) -> Result<()> {
    check_dashboard(&source_files()?)?;
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

/// Checks that the dashboard asks for metrics that the coordinator has.
fn check_dashboard(files: &[SourceFile]) -> Result<()> {
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str()).with_context(|| path.to_owned())
    };
    let unknown = unknown_metrics(text(DASHBOARD)?, text(METRICS)?);
    if unknown.is_empty() {
        return Ok(());
    }
    bail!("{DASHBOARD} asks for what {METRICS} does not list: {}", unknown.join(", "))
}

/// Returns the metrics of a dashboard that a page does not list. A histogram has three names more.
fn unknown_metrics(dashboard: &str, page: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = dashboard.split(|c| !is_part(c)).filter(|word| word.starts_with("handfast_"));
    let listed = |name: &str| page.contains(&format!("`{name}`"));
    let is_known = |name: &&str| {
        let parts = ["_bucket", "_sum", "_count"];
        listed(name) || parts.iter().any(|part| name.strip_suffix(part).is_some_and(listed))
    };
    names.filter(|name| !is_known(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_not_listed_is_found() {
        let page = "| `handfast_epoch` | gauge |\n| `handfast_begin_seconds` | histogram |";
        let known = "sum(rate(handfast_begin_seconds_bucket[1m])) + handfast_epoch{job=\"x\"}";
        assert!(unknown_metrics(known, page).is_empty());
        assert_eq!(unknown_metrics("handfast_epochs > 0", page), ["handfast_epochs"]);
    }
}
