//! The commands about sagas, and sagas in words.
//!
//! A STEP is quoted: `"NAME RESOURCE [KIND] [OPTION...]"`, with a `+` before the name where the
//! step runs beside the one before it. KIND is `harmless`, `pivot`, `retriable` or `signal` (whose
//! resource is `-`); an OPTION is `attempts=N`, `timeout=MS` or `takes=STEP`. A child saga is
//! `"NAME - child [timeout=MS] [gives=STEP]"`, and its steps come after it as `NAME/STEP`.

use std::collections::BTreeMap;
use std::sync::Arc;

use goldenscript::ArgumentConsumer;
use handfast_core::{
    ChildDefinition, ChildRef, Command, DecidedBy, Retry, SagaDefinition, SagaFilter, SagaPart,
    SagaRecord, SagaStatus, SagaSummary, SagaView, StepCall, StepDefinition, StepKind, StepRecord,
    StepRef, StepState, Timestamp, TurnCause, Xid,
};

use super::{Fallible, request, text};

pub(crate) fn start(subject: &str, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let key = arguments.take_key("key").unwrap_or(subject).into();
    let timeout_ms = arguments.take_key("timeout").map(str::parse).transpose()?;
    let labels = request::labels(arguments.take_key("labels").unwrap_or_default())?;
    let mut saga = Author::default();
    while let Some(text) = arguments.next_pos() {
        saga.add(text)?;
    }
    let definition = Arc::new(saga.finish(timeout_ms)?);
    Ok(Command::StartSaga { application: "shop".into(), key, definition, labels })
}

/// Makes a definition of its parts, which are known by their paths.
#[derive(Default)]
struct Author {
    steps: Vec<StepDefinition>,
    children: Vec<ChildDefinition>,
    parts: Vec<(String, SagaPart)>,
    groups: BTreeMap<Option<ChildRef>, u32>,
    gives: Vec<(ChildRef, String)>,
}

impl Author {
    fn add(&mut self, text: &str) -> Fallible<()> {
        let beside = text.starts_with('+');
        let words: Vec<&str> = text.trim_start_matches('+').split(' ').collect();
        let (path, resource) = match &*words {
            [path, resource, ..] => (*path, resource.trim_start_matches('-')),
            _ => return Err("on which resource?".into()),
        };
        let (around, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = match self.part(around) {
            Some(SagaPart::Child(child)) => Some(child),
            Some(SagaPart::Step(_)) | None => None,
        };
        let last = self.groups.get(&parent);
        let group = last.map_or(0, |&last| if beside { last } else { last + 1 });
        self.groups.insert(parent, group);
        if words.get(2) == Some(&"child") {
            self.add_child(path, parent, group, &words[3..])
        } else {
            let mut step = StepDefinition {
                name: name.into(),
                parent,
                group,
                kind: StepKind::Compensable,
                resource: resource.into(),
                action: if resource.is_empty() { "".into() } else { name.into() },
                input: Arc::default(),
                takes: Vec::new(),
                retry: Retry::DEFAULT,
                timeout_ms: None,
            };
            words[2..].iter().try_for_each(|word| self.describe(&mut step, around, word))?;
            let place = SagaPart::Step(StepRef(u32::try_from(self.steps.len())?));
            self.parts.push((path.to_owned(), place));
            self.steps.push(step);
            Ok(())
        }
    }

    fn add_child(
        &mut self,
        path: &str,
        parent: Option<ChildRef>,
        group: u32,
        options: &[&str],
    ) -> Fallible<()> {
        let name: Arc<str> = path.rsplit('/').next().unwrap_or(path).into();
        let saga = name.clone();
        let mut child =
            ChildDefinition { name, saga, parent, group, timeout_ms: None, output: None };
        let place = ChildRef(u32::try_from(self.children.len())?);
        for option in options {
            match option.split_once('=') {
                Some(("timeout", ms)) => child.timeout_ms = Some(ms.parse()?),
                Some(("gives", of)) => self.gives.push((place, format!("{path}/{of}"))),
                Some(_) | None => return Err(format!("no such option: {option}").into()),
            }
        }
        self.children.push(child);
        self.parts.push((path.to_owned(), SagaPart::Child(place)));
        Ok(())
    }

    fn describe(&self, step: &mut StepDefinition, around: &str, word: &str) -> Fallible<()> {
        match word.split_once('=').unwrap_or((word, "")) {
            ("harmless", _) => step.kind = StepKind::Harmless,
            ("pivot", _) => step.kind = StepKind::Pivot,
            ("retriable", _) => step.kind = StepKind::Retriable,
            ("signal", _) => step.kind = StepKind::Signal,
            ("attempts", count) => step.retry.attempts = Some(count.parse()?),
            ("timeout", ms) => step.timeout_ms = Some(ms.parse()?),
            ("takes", name) => {
                let outwards = std::iter::successors(Some(around), |it| {
                    (!it.is_empty()).then(|| it.rsplit_once('/').map_or("", |(outer, _)| outer))
                });
                let seen =
                    |it: &str| if it.is_empty() { name.into() } else { format!("{it}/{name}") };
                let taken = outwards.into_iter().find_map(|it| self.part(&seen(it)));
                step.takes.push(taken.unwrap_or(SagaPart::Step(StepRef(99))));
            }
            (other, _) => return Err(format!("no such option: {other}").into()),
        }
        Ok(())
    }

    fn part(&self, path: &str) -> Option<SagaPart> {
        self.parts.iter().find(|(known, _)| known == path).map(|&(_, part)| part)
    }

    fn finish(mut self, timeout_ms: Option<u64>) -> Fallible<SagaDefinition> {
        for (child, path) in std::mem::take(&mut self.gives) {
            let part = self.part(&path).unwrap_or(SagaPart::Step(StepRef(99)));
            self.children[usize::try_from(child.0)?].output = Some(part);
        }
        let (steps, children) = (self.steps, self.children);
        Ok(SagaDefinition { name: "place-order".into(), timeout_ms, steps, children })
    }
}

pub(crate) fn signal(xid: Xid, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let signal = arguments.next_pos().ok_or("which signal?")?.into();
    let payload = arguments.take_key("data").unwrap_or("").as_bytes().into();
    let operator = arguments.take_key("by").map(Into::into);
    Ok(Command::SignalSaga { xid, signal, payload, operator })
}

pub(crate) fn cancel(xid: Xid, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let by = match arguments.take_key("by") {
        None => DecidedBy::Client,
        Some(_) => DecidedBy::Operator,
    };
    let reason = arguments.take_key("reason").unwrap_or("").into();
    Ok(Command::CancelSaga { xid, by, reason })
}

/// Reads the filter of a list.
pub(crate) fn filter(arguments: &mut ArgumentConsumer<'_>) -> Fallible<SagaFilter> {
    let mut text_of = |name| arguments.take_key(name).map(str::to_owned);
    let status = text_of("status").map(|word| match &*word {
        "running" => Ok(SagaStatus::Running),
        "completed" => Ok(SagaStatus::Completed),
        "compensating" => Ok(SagaStatus::Compensating),
        "compensated" => Ok(SagaStatus::Compensated),
        "needs-operator" => Ok(SagaStatus::NeedsOperator),
        other => Err(format!("no such status: {other}")),
    });
    Ok(SagaFilter {
        status: status.transpose()?,
        application: text_of("application"),
        name: text_of("name"),
        key: text_of("key"),
        awaits: text_of("awaits"),
        begun_before: text_of("begun_before").map(|at| at.parse().map(Timestamp)).transpose()?,
        label: text_of("label").map(|text| request::label(&text)).transpose()?,
    })
}

pub(crate) fn summary(saga: &SagaSummary) -> String {
    let list = |names: &[Arc<str>]| names.join(" ");
    let cause = saga.cause.as_ref().map_or(String::new(), |cause| format!(" ({cause})"));
    let labels: String = saga.labels.iter().map(text::label).collect();
    format!(
        "{} {} {}/{}{labels} begun at {}: {}{cause}, {} of {} done, under way [{}], awaits [{}]\n",
        saga.xid,
        saga.key,
        saga.application,
        saga.name,
        saga.begun_at.0,
        saga.status,
        saga.steps_done,
        saga.steps,
        list(&saga.under_way),
        list(&saga.awaits),
    )
}

pub(crate) fn timeouts(saga: &SagaView) -> String {
    let name = |part| saga.record.definition.path(part);
    let lines = saga.timeouts.iter().map(|(at, cause)| match cause {
        TurnCause::StepTimeout(step) => format!("{} at {}\n", name(SagaPart::Step(*step)), at.0),
        TurnCause::ChildTimeout(child) => {
            format!("{} at {}\n", name(SagaPart::Child(*child)), at.0)
        }
        TurnCause::Timeout
        | TurnCause::Refused(_)
        | TurnCause::Exhausted(_)
        | TurnCause::Cancelled
        | TurnCause::Operator => format!("saga at {}\n", at.0),
    });
    lines.collect()
}

pub(crate) fn heading(saga: &SagaRecord) -> String {
    let cause = saga.cause().map_or(String::new(), |cause| format!(" ({cause})"));
    let ended = saga.ended_at().map_or(String::new(), |at| format!(" at {}", at.0));
    let paused = if saga.paused { ", paused" } else { "" };
    format!("{}{cause}{ended}{paused}", saga.status())
}

pub(crate) fn states(saga: &SagaRecord) -> String {
    let definition = &saga.definition;
    let states = definition.outline().into_iter().map(|part| match part {
        SagaPart::Step(step) => {
            format!("{} {}", definition.path(part), saga.steps[step.0 as usize].state)
        }
        SagaPart::Child(child) => format!("{} {}", definition.path(part), saga.child_state(child)),
    });
    let states: Vec<_> = states.collect();
    format!("{}; {}", saga.status(), states.join(", "))
}

pub(crate) fn show(saga: &SagaRecord) -> String {
    let mut text = format!("{} {}: {}\n", saga.xid, saga.key, heading(saga));
    for event in saga.events.iter() {
        text += &format!("  at {}: {}\n", event.at.0, event.what);
    }
    for part in saga.definition.outline() {
        let (state, failure) = match part {
            SagaPart::Step(step) => failure_of(&saga.steps[step.0 as usize]),
            SagaPart::Child(child) => (saga.child_state(child), String::new()),
        };
        text += &format!("  {}: {state}{failure}", saga.definition.path(part));
        if let Some(output) = saga.output(part) {
            text += &format!(", gave {}", String::from_utf8_lossy(output));
        }
        text += "\n";
    }
    text
}

fn failure_of(step: &StepRecord) -> (StepState, String) {
    let failure = step
        .last_failure
        .as_ref()
        .map(|(at, error)| format!(", failed {} times, last at {}: {error}", step.attempts, at.0));
    (step.state, failure.unwrap_or_default())
}

pub(crate) fn call(step: &StepCall) -> String {
    let outputs = step
        .outputs
        .iter()
        .map(|given| format!(", {} gave {}", given.step, String::from_utf8_lossy(&given.output)));
    format!(" ({}){}", step.step, outputs.collect::<String>())
}
