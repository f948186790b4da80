//! The commands about sagas, and sagas in words.
//!
//! A STEP is quoted: `"NAME RESOURCE [KIND] [OPTION...]"`, with a `+` before the name where the
//! step runs beside the one before it. KIND is `harmless`, `pivot`, `retriable` or `signal` (whose
//! resource is `-`); an OPTION is `attempts=N`, `timeout=MS` or `takes=STEP`.

use std::sync::Arc;

use goldenscript::ArgumentConsumer;
use handfast_core::{
    DecidedBy, Retry, SagaDefinition, SagaRecord, StepCall, StepDefinition, StepKind, StepRef,
    What, Xid,
};

use super::Fallible;

pub(crate) fn start(subject: &str, arguments: &mut ArgumentConsumer<'_>) -> Fallible<What> {
    let key = arguments.take_key("key").unwrap_or(subject).into();
    let timeout_ms = arguments.take_key("timeout").map(str::parse).transpose()?;
    let mut steps: Vec<StepDefinition> = Vec::new();
    while let Some(text) = arguments.next_pos() {
        steps.push(step(&steps, text)?);
    }
    let definition = SagaDefinition { name: "place-order".into(), timeout_ms, steps };
    Ok(What::StartSaga { application: "shop".into(), key, definition: Arc::new(definition) })
}

fn step(before: &[StepDefinition], text: &str) -> Fallible<StepDefinition> {
    let beside = text.starts_with('+');
    let last = before.last().map(|last| last.group);
    let group = last.map_or(0, |last| if beside { last } else { last + 1 });
    let mut words = text.trim_start_matches('+').split(' ');
    let name = words.next().unwrap_or("");
    let resource = words.next().ok_or("on which resource?")?.trim_start_matches('-');
    let mut step = StepDefinition {
        name: name.into(),
        group,
        kind: StepKind::Compensable,
        resource: resource.into(),
        action: if resource.is_empty() { "".into() } else { name.into() },
        input: Arc::default(),
        takes: Vec::new(),
        retry: Retry::DEFAULT,
        timeout_ms: None,
    };
    words.try_for_each(|word| describe(&mut step, before, word))?;
    Ok(step)
}

fn describe(step: &mut StepDefinition, before: &[StepDefinition], word: &str) -> Fallible<()> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("harmless", _) => step.kind = StepKind::Harmless,
        ("pivot", _) => step.kind = StepKind::Pivot,
        ("retriable", _) => step.kind = StepKind::Retriable,
        ("signal", _) => step.kind = StepKind::Signal,
        ("attempts", count) => step.retry.attempts = Some(count.parse()?),
        ("timeout", ms) => step.timeout_ms = Some(ms.parse()?),
        ("takes", name) => {
            let place = before.iter().position(|step| *step.name == *name).unwrap_or(99);
            step.takes.push(StepRef(u32::try_from(place)?));
        }
        (other, _) => return Err(format!("no such option: {other}").into()),
    }
    Ok(())
}

pub(crate) fn signal(xid: Xid, arguments: &mut ArgumentConsumer<'_>) -> Fallible<What> {
    let signal = arguments.next_pos().ok_or("which signal?")?.into();
    let payload = arguments.take_key("data").unwrap_or("").as_bytes().into();
    Ok(What::SignalSaga { xid, signal, payload })
}

pub(crate) fn cancel(xid: Xid, arguments: &mut ArgumentConsumer<'_>) -> Fallible<What> {
    let by = match arguments.take_key("by") {
        None => DecidedBy::Client,
        Some(_) => DecidedBy::Operator,
    };
    let reason = arguments.take_key("reason").unwrap_or("").into();
    Ok(What::CancelSaga { xid, by, reason })
}

pub(crate) fn heading(saga: &SagaRecord) -> String {
    let cause = saga.cause().map_or(String::new(), |cause| format!(" ({cause})"));
    let ended = saga.ended_at().map_or(String::new(), |at| format!(" at {}", at.0));
    let paused = if saga.paused { ", paused" } else { "" };
    format!("{}{cause}{ended}{paused}", saga.status())
}

pub(crate) fn states(saga: &SagaRecord) -> String {
    let steps = saga.definition.steps.iter().zip(&saga.steps);
    let states = steps.map(|(definition, step)| format!("{} {}", definition.name, step.state));
    let states: Vec<_> = states.collect();
    format!("{}; {}", saga.status(), states.join(", "))
}

pub(crate) fn show(saga: &SagaRecord) -> String {
    let mut text = format!("{} {}: {}\n", saga.xid, saga.key, heading(saga));
    for event in saga.events.iter() {
        text += &format!("  at {}: {}\n", event.at.0, event.what);
    }
    for (definition, step) in saga.definition.steps.iter().zip(&saga.steps) {
        text += &format!("  {}: {}", definition.name, step.state);
        if let Some((at, error)) = &step.last_failure {
            text += &format!(", failed {} times, last at {}: {error}", step.attempts, at.0);
        }
        if let Some(output) = &step.output {
            text += &format!(", gave {}", String::from_utf8_lossy(output));
        }
        text += "\n";
    }
    text
}

pub(crate) fn call(step: &StepCall) -> String {
    let outputs = step
        .outputs
        .iter()
        .map(|given| format!(", {} gave {}", given.step, String::from_utf8_lossy(&given.output)));
    format!(" ({}){}", step.step, outputs.collect::<String>())
}
