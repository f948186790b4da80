//! Sagas as text, with the commands by which they go on.

use std::fmt::Write as _;

use super::transaction::{labels, push};
use super::{Sheet, Style, add_row, flowing, more, printable, table, text, whole, word};
use crate::admin::model::{
    NextAttempt, Payload, SagaDetail, SagaOverview, SagaPage, SagaReply, SagaStanding, SagaStep,
    SagaStepKind, SagaStepState,
};
use crate::time_format;

/// Renders one line per saga.
#[must_use]
pub(crate) fn render_sagas(page: &SagaPage, style: Style) -> String {
    if page.items.is_empty() {
        return format!("no sagas{}", more(page.next.as_deref()));
    }
    let columns = [
        whole("XID"),
        whole("KEY"),
        flowing("STATUS"),
        flowing("NAME").left_out(3),
        flowing("AT"),
        flowing("DONE").left_out(1),
        flowing("AGE").left_out(4),
        flowing("APPLICATION").left_out(2),
        flowing("LABELS").left_out(5),
    ];
    let mut sheet = Sheet::new(style, columns);
    for saga in &page.items {
        let cells = [
            &*saga.xid,
            &saga.key,
            &standing(saga),
            &saga.name,
            &place(saga),
            &format!("{} of {}", saga.steps_done, saga.step_count),
            &time_format::duration(saga.age_ms),
            &saga.application,
            &labels(&saga.labels),
        ];
        sheet.row(cells);
    }
    format!("{}{}", sheet.text(), more(page.next.as_deref()))
}

/// Renders a saga with its steps, payloads and timeline, and what an operator can do.
#[must_use]
pub fn render_saga(detail: &SagaDetail, style: Style) -> String {
    let saga = &detail.saga;
    let deadline = saga.deadline.as_ref().map(|at| format!("  deadline {at}"));
    let mut shown = format!(
        "{}  {}\nkey {}\n{} / {}  begun {} ({} ago){}\n",
        saga.xid,
        standing(saga),
        printable(&saga.key),
        printable(&saga.application),
        printable(&saga.name),
        saga.begun_at,
        time_format::duration(saga.age_ms),
        deadline.unwrap_or_default(),
    );
    if !saga.labels.is_empty() {
        writeln!(shown, "labels {}", labels(&saga.labels)).expect("a string takes it");
    }
    if let Some(cause) = &saga.cause {
        writeln!(shown, "compensated because: {}", printable(cause)).expect("a string takes it");
    }
    push(&mut shown, "steps", &steps(&detail.steps, style));
    let payloads = payloads(&detail.steps, style);
    if !payloads.is_empty() {
        push(&mut shown, "inputs and outputs", &payloads);
    }
    let mut events = table(style, &["AT", "WHAT"]);
    for entry in &detail.timeline {
        add_row(&mut events, [&entry.at, &entry.what]);
    }
    push(&mut shown, "timeline", &text(&events));
    let commands = commands(detail);
    if !commands.is_empty() {
        push(&mut shown, "to go on", &commands.join("\n"));
    }
    shown
}

/// Renders the result of an action.
#[must_use]
pub(crate) fn render_saga_action(reply: &SagaReply, _style: Style) -> String {
    format!("{} (key {}) is {}", reply.xid, printable(&reply.key), word(&reply.status))
}

fn standing(saga: &SagaOverview) -> String {
    let paused = if saga.paused && saga.ended_at.is_none() { ", paused" } else { "" };
    format!("{}{paused}", word(&saga.status))
}

/// Returns what a saga is doing.
fn place(saga: &SagaOverview) -> String {
    let waits = saga.awaits.iter().map(|signal| format!("{signal} (waits for a signal)"));
    let all: Vec<String> = waits.chain(saga.under_way.iter().cloned()).collect();
    all.join(", ")
}

fn steps(steps: &[SagaStep], style: Style) -> String {
    let columns = [
        whole("STEP"),
        flowing("KIND").left_out(3),
        flowing("STATE"),
        flowing("FAILED").left_out(2),
        flowing("NEXT").left_out(4),
        whole("AT").left_out(1),
        flowing("LAST FAILURE"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for step in steps {
        let at = match (&step.action, &step.resource, &step.saga) {
            (Some(action), Some(resource), _) => format!("{action} at {resource}"),
            (_, _, Some(saga)) => format!("saga {saga}"),
            _ => "a signal".to_owned(),
        };
        let cells = [
            &*step.name,
            &word(&step.kind),
            &word(&step.state),
            &step.attempts.to_string(),
            &step.next_attempt.as_ref().map_or_else(|| times_out(step), next),
            &at,
            step.last_failure.as_ref().map_or("-", |failure| &failure.error),
        ];
        sheet.row(cells);
    }
    sheet.text()
}

fn next(NextAttempt { state, at }: &NextAttempt) -> String {
    match at {
        Some(at) => format!("{} {at}", word(state)),
        None => word(state),
    }
}

/// Returns until when a signal is waited for.
fn times_out(step: &SagaStep) -> String {
    step.times_out_at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("until {at}"))
}

fn payloads(steps: &[SagaStep], style: Style) -> String {
    let columns = [whole("STEP"), flowing("WHAT"), flowing("BYTES"), flowing("CONTENT")];
    let mut sheet = Sheet::new(style, columns);
    let mut count = 0;
    for step in steps {
        for (what, payload) in [("input", &step.input), ("output", &step.output)] {
            if let Some(payload) = payload {
                sheet.row([&*step.name, what, &payload.bytes.to_string(), &content(payload)]);
                count += 1;
            }
        }
    }
    if count == 0 { String::new() } else { sheet.text() }
}

fn content(payload: &Payload) -> String {
    let json = payload.json.as_ref().map(ToString::to_string);
    // Without a text it is JSON, of which `null` is read as a missing value.
    let text = json.or_else(|| payload.text.clone()).unwrap_or_else(|| "null".to_owned());
    if payload.cut { format!("{text}...") } else { text }
}

/// Returns the commands by which a saga that waits for a person goes on.
fn commands(detail: &SagaDetail) -> Vec<String> {
    let xid = &detail.saga.xid;
    let mut commands = Vec::new();
    for step in &detail.steps {
        let branch = step.branch.as_deref().unwrap_or_default();
        match (step.kind, step.state) {
            (SagaStepKind::Signal, SagaStepState::Running) => {
                let name = quoted(&printable(&step.name));
                commands.push(format!("handfast saga signal {xid} {name} --payload null"));
            }
            (SagaStepKind::Child, _) => {}
            (_, SagaStepState::RunningStuck | SagaStepState::CompensatingStuck) => {
                commands.push(format!("handfast tx retry {xid}"));
                let resolve = format!("handfast tx resolve {xid} {branch} accept_current");
                commands
                    .push(format!("{resolve}   # {} was put right by hand", printable(&step.name)));
            }
            (
                _,
                SagaStepState::Waiting
                | SagaStepState::Running
                | SagaStepState::Done
                | SagaStepState::Failed
                | SagaStepState::Compensating
                | SagaStepState::Compensated,
            ) => {}
        }
    }
    if detail.saga.status == SagaStanding::Running {
        commands.push(format!("handfast saga cancel {xid}   # unless its pivot has begun"));
    }
    commands
}

/// Quotes a name for a shell, if need be.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\\''"))
    }
}
