//! Draws a saga for Graphviz. Solid arrows lead forward, dashed ones back; dotted ones carry
//! outputs.

use handfast_core::{SagaDefinition, SagaPart, StepKind, StepRef};

use super::tree::{Element, Groups, backwards, entries, exits, forwards};

/// Returns the drawing. A child is a frame around its steps.
pub(super) fn drawn(saga: &SagaDefinition) -> String {
    let mut lines = vec![format!("digraph {} {{", quoted(&saga.name))];
    lines.extend(["  rankdir=LR;", "  node [shape=box];"].map(str::to_owned));
    let groups = forwards(saga);
    add_nodes(saga, &groups, "  ", &mut lines);
    add_arrows(saga, &groups, "style=solid", &mut lines);
    add_arrows(saga, &backwards(saga), "style=dashed, constraint=false", &mut lines);
    for (to, step) in (0..).map(StepRef).zip(&saga.steps) {
        let from = step.takes.iter().filter_map(|&taken| saga.source(taken));
        lines.extend(from.map(|from| arrow(saga, from, to, "style=dotted, constraint=false")));
    }
    lines.extend(["}", ""].map(str::to_owned));
    lines.join("\n")
}

fn add_nodes(saga: &SagaDefinition, groups: &Groups, margin: &str, lines: &mut Vec<String>) {
    for element in groups.iter().flatten() {
        match element {
            Element::Step(step) => lines.push(format!("{margin}{}", node(saga, *step))),
            Element::Child(_, groups) => {
                let name = saga.path(element.part());
                lines.push(format!("{margin}subgraph {} {{", quoted(&format!("cluster {name}"))));
                lines.push(format!("{margin}  label={};", quoted(&name)));
                add_nodes(saga, groups, &format!("{margin}  "), lines);
                lines.push(format!("{margin}}}"));
            }
        }
    }
}

fn node(saga: &SagaDefinition, place: StepRef) -> String {
    let step = &saga.steps[place.0 as usize];
    let label = quoted(format!("{}\n{}", step.name, step.action).trim_end());
    format!("{} [label={label}, {}];", id(saga, place), node_style(step.kind))
}

/// Adds arrows from the last steps of each group to the first of the next, and within each child.
fn add_arrows(saga: &SagaDefinition, groups: &Groups, attributes: &str, lines: &mut Vec<String>) {
    for (before, after) in groups.iter().zip(groups.iter().skip(1)) {
        for to in after.iter().flat_map(entries) {
            let from = before.iter().flat_map(exits);
            lines.extend(from.map(|from| arrow(saga, from, to, attributes)));
        }
    }
    for element in groups.iter().flatten() {
        if let Element::Child(_, groups) = element {
            add_arrows(saga, groups, attributes, lines);
        }
    }
}

fn arrow(saga: &SagaDefinition, from: StepRef, to: StepRef, attributes: &str) -> String {
    format!("  {} -> {} [{attributes}];", id(saga, from), id(saga, to))
}

fn id(saga: &SagaDefinition, step: StepRef) -> String {
    quoted(&saga.path(SagaPart::Step(step)))
}

fn node_style(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Compensable => "style=solid",
        StepKind::Harmless => "style=rounded",
        StepKind::Pivot => "peripheries=2",
        StepKind::Retriable => "style=bold",
        StepKind::Signal => "shape=ellipse",
    }
}

/// Quotes a text as a Graphviz string.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
