//! `handfast saga explain`: what a saga's JSON file says, drawn for people. Asks no coordinator.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

use handfast_core::{Limits, Retry, SagaDefinition, StepDefinition, StepKind};
use handfast_proto::saga_json;

use super::{CliFailure, Exit};
use crate::grpc::Bounds;

/// Draws the saga of a file as text.
pub(super) fn draw(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(as_text(&read(file)?).as_bytes())?)
}

/// Draws it for Graphviz.
pub(super) fn draw_dot(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(as_dot(&read(file)?).as_bytes())?)
}

/// The saga of a file, if a coordinator with the default limits would start it.
fn read(file: &Path) -> Result<SagaDefinition, CliFailure> {
    let wrong = |exit, code: &str, why: &dyn fmt::Display| {
        CliFailure::new(exit, code, format!("{}: {why}", file.display()))
    };
    let json =
        fs::read_to_string(file).map_err(|error| wrong(Exit::Usage, "HF-CLI-SAGA-FILE", &error))?;
    let wire = saga_json::definition(&json)
        .map_err(|error| wrong(Exit::Usage, saga_json::CODE, &error))?;
    let saga =
        Bounds::default().definition(wire).map_err(|bad| wrong(Exit::Refused, bad.code(), &bad))?;
    saga.check(&Limits::default())
        .map_err(|fault| wrong(Exit::Refused, "HF-TC-SAGA-INVALID", &fault))?;
    Ok(saga)
}

/// One line a step, the first of a group with the group's number, and the way back.
fn as_text(saga: &SagaDefinition) -> String {
    let name_width = saga.steps.iter().map(|step| step.name.chars().count()).max().unwrap_or(0);
    let until = saga
        .timeout_ms
        .map(|timeout_ms| format!(", taken back after {timeout_ms} ms unless its pivot has begun"));
    let mut lines = vec![format!("saga {}{}", saga.name, until.unwrap_or_default()), String::new()];
    let mut drawn = None;
    for step in &saga.steps {
        let group = if drawn == Some(step.group) { String::new() } else { number(step.group) };
        let (name, kind) = (&step.name, word(step.kind));
        let line = format!("{group:>3}  {name:<name_width$}  {kind:<11}  {}", what(saga, step));
        lines.push(line.trim_end().to_owned());
        drawn = Some(step.group);
        if step.kind == StepKind::Pivot {
            lines.push("     ---- from here on there is no way back ----".to_owned());
        }
    }
    let back: Vec<String> = backwards(saga).into_iter().map(|names| names.join(" and ")).collect();
    let back = if back.is_empty() { "nothing".to_owned() } else { back.join(", then ") };
    lines.extend([String::new(), format!("to be taken back: {back}"), String::new()]);
    lines.join("\n")
}

/// People count from one.
fn number(group: u32) -> String {
    (group + 1).to_string()
}

/// Who does what, and what is not as it is by default.
fn what(saga: &SagaDefinition, step: &StepDefinition) -> String {
    let mut parts = Vec::new();
    if step.kind != StepKind::Signal {
        parts.push(format!("{} at {}", step.action, step.resource));
    }
    parts.extend(taken(saga, step).map(|taken| format!("takes {}", taken.name)));
    let Retry { base_ms, factor, cap_ms, attempts } = step.retry;
    parts.extend(attempts.map(|attempts| format!("at most {attempts} attempts")));
    if (Retry { attempts: None, ..step.retry }) != Retry::DEFAULT {
        parts.push(format!("pauses {base_ms} ms x {factor} up to {cap_ms} ms"));
    }
    parts.extend(step.timeout_ms.map(|timeout_ms| format!("given up after {timeout_ms} ms")));
    parts.join(", ")
}

/// The names of the steps whose compensations are called, by group, in their order.
fn backwards(saga: &SagaDefinition) -> Vec<Vec<&str>> {
    let mut groups: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for step in saga.steps.iter().filter(|step| step.kind == StepKind::Compensable) {
        groups.entry(step.group).or_default().push(&step.name);
    }
    groups.into_values().rev().collect()
}

/// Solid arrows lead forward, dashed ones back, dotted ones carry outputs.
fn as_dot(saga: &SagaDefinition) -> String {
    let mut lines = vec![format!("digraph {} {{", quoted(&saga.name))];
    lines.extend(["  rankdir=LR;", "  node [shape=box];"].map(str::to_owned));
    lines.extend(saga.steps.iter().map(|step| {
        let label = quoted(format!("{}\n{}", step.name, step.action).trim_end());
        format!("  {} [label={label}, {}];", quoted(&step.name), look(step.kind))
    }));
    let follows = |from: &StepDefinition, to: &StepDefinition| from.group + 1 == to.group;
    for to in &saga.steps {
        let before = saga.steps.iter().filter(|from| follows(from, to));
        lines.extend(before.map(|from| arrow(&from.name, &to.name, "style=solid")));
    }
    let back = backwards(saga);
    for (later, earlier) in back.iter().zip(back.iter().skip(1)) {
        for from in later {
            lines
                .extend(earlier.iter().map(|to| arrow(from, to, "style=dashed, constraint=false")));
        }
    }
    for step in &saga.steps {
        let style = "style=dotted, constraint=false";
        lines.extend(taken(saga, step).map(|from| arrow(&from.name, &step.name, style)));
    }
    lines.extend(["}", ""].map(str::to_owned));
    lines.join("\n")
}

fn taken<'saga>(
    saga: &'saga SagaDefinition,
    step: &'saga StepDefinition,
) -> impl Iterator<Item = &'saga StepDefinition> {
    step.takes.iter().filter_map(|taken| saga.steps.get(taken.0 as usize))
}

fn arrow(from: &str, to: &str, attributes: &str) -> String {
    format!("  {} -> {} [{attributes}];", quoted(from), quoted(to))
}

fn look(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Compensable => "style=solid",
        StepKind::Harmless => "style=rounded",
        StepKind::Pivot => "peripheries=2",
        StepKind::Retriable => "style=bold",
        StepKind::Signal => "shape=ellipse",
    }
}

fn word(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Compensable => "compensable",
        StepKind::Harmless => "harmless",
        StepKind::Pivot => "pivot",
        StepKind::Retriable => "retriable",
        StepKind::Signal => "signal",
    }
}

/// A string of Graphviz.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
