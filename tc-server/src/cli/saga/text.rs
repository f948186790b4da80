//! Draws a saga as text: one line per part, the first of each group with the group's number, and
//! the order of compensations.

use handfast_core::{
    ChildDefinition, Retry, SagaDefinition, SagaPart, StepDefinition, StepKind, StepRef,
};

use super::tree::{Element, Groups, backwards, forwards};

/// Returns the drawing.
pub(super) fn drawn(saga: &SagaDefinition) -> String {
    let until = saga.timeout_ms.map(|timeout_ms| {
        format!(", compensated after {timeout_ms} ms unless its pivot has begun")
    });
    let mut rows = Vec::new();
    add_rows(saga, &forwards(saga), "", &mut rows);
    let number_width = rows.iter().map(|row| row.number.len() + 2).max().unwrap_or(0);
    let name_width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut lines = vec![format!("saga {}{}", saga.name, until.unwrap_or_default()), String::new()];
    for Row { number, name, word, details, is_pivot } in rows {
        let line = format!("{number:>number_width$}  {name:<name_width$}  {word:<11}  {details}");
        lines.push(line.trim_end().to_owned());
        if is_pivot {
            let margin = " ".repeat(number_width + 2);
            lines.push(format!("{margin}---- from here on there is no way back ----"));
        }
    }
    let back = way_back(saga, &backwards(saga)).join(", then ");
    let back = if back.is_empty() { "nothing" } else { &back };
    lines.extend([String::new(), format!("to be compensated: {back}"), String::new()]);
    lines.join("\n")
}

struct Row {
    /// The number of its group, such as `2.1`; empty if the line above has the same.
    number: String,
    name: String,
    word: &'static str,
    details: String,
    is_pivot: bool,
}

/// Adds a row per part. Groups are numbered from one.
fn add_rows(saga: &SagaDefinition, groups: &Groups, around: &str, rows: &mut Vec<Row>) {
    for (at, group) in (1..).zip(groups) {
        let number = format!("{around}{at}");
        for (place, element) in group.iter().enumerate() {
            let shown = if place == 0 { number.clone() } else { String::new() };
            rows.push(row(saga, element.part(), shown));
            if let Element::Child(_, groups) = element {
                add_rows(saga, groups, &format!("{number}."), rows);
            }
        }
    }
}

fn row(saga: &SagaDefinition, part: SagaPart, number: String) -> Row {
    let name = saga.path(part).as_ref().to_owned();
    match part {
        SagaPart::Step(step) => {
            let step = &saga.steps[step.0 as usize];
            let is_pivot = step.kind == StepKind::Pivot;
            Row { number, name, word: word(step.kind), details: details(saga, step), is_pivot }
        }
        SagaPart::Child(child) => {
            let child = &saga.children[child.0 as usize];
            Row {
                number,
                name,
                word: "child",
                details: details_of_child(saga, child),
                is_pivot: false,
            }
        }
    }
}

/// Describes a step: its action and resource, its inputs, and the settings that are not the
/// default.
fn details(saga: &SagaDefinition, step: &StepDefinition) -> String {
    let mut parts = Vec::new();
    if step.kind != StepKind::Signal {
        parts.push(format!("{} at {}", step.action, step.resource));
    }
    parts.extend(step.takes.iter().map(|&taken| format!("takes {}", saga.path(taken))));
    let Retry { base_ms, factor, cap_ms, attempts } = step.retry;
    parts.extend(attempts.map(|attempts| format!("at most {attempts} attempts")));
    if (Retry { attempts: None, ..step.retry }) != Retry::DEFAULT {
        parts.push(format!("pauses {base_ms} ms x {factor} up to {cap_ms} ms"));
    }
    parts.extend(step.timeout_ms.map(given_up));
    parts.join(", ")
}

fn details_of_child(saga: &SagaDefinition, child: &ChildDefinition) -> String {
    let mut parts = vec![child.saga.as_ref().to_owned()];
    parts.extend(child.output.map(|output| format!("gives {}", saga.path(output))));
    parts.extend(child.timeout_ms.map(given_up));
    parts.join(", ")
}

fn given_up(timeout_ms: u64) -> String {
    format!("given up after {timeout_ms} ms")
}

/// Describes the compensating groups. A child with several groups is in brackets if other parts run
/// beside it.
fn way_back(saga: &SagaDefinition, groups: &Groups) -> Vec<String> {
    let one = |step: StepRef| saga.path(SagaPart::Step(step)).as_ref().to_owned();
    let beside = |element: &Element| match element {
        Element::Step(step) => one(*step),
        Element::Child(_, groups) => match &*way_back(saga, groups) {
            [only] => only.clone(),
            several => format!("({})", several.join(", then ")),
        },
    };
    let in_words = |group: &Vec<Element>| match &**group {
        [Element::Child(_, groups)] => way_back(saga, groups),
        elements => vec![elements.iter().map(beside).collect::<Vec<_>>().join(" and ")],
    };
    groups.iter().flat_map(in_words).collect()
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
