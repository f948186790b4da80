//! The spans of the library, and where they stand in the traces of other processes.
//!
//! The spans are those of `tracing`, on level `INFO` and with one target, [`TARGET`]; a span that
//! no subscriber wants costs a look at an atomic. With the feature `otel` they take part in traces
//! of OpenTelemetry: what is sent to other processes carries the place of the running code
//! (`traceparent`), and what comes from them is put in its place. Nothing is exported here: that
//! is what the application's own subscriber does.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

use handfast_proto::v1::{Decision, PhaseTwoBranch, PhaseTwoCall, Question, SagaStepCall};
use handfast_rm_core::plan::Dialect;
use tracing::field::{Empty, display};
use tracing::{Span, info_span};

use crate::outbox::Event;
use crate::xid::Xid;

#[cfg(not(feature = "otel"))]
pub(crate) use none::{link, put_under, read_header, rename, traceparent, write_headers};
#[cfg(feature = "otel")]
pub(crate) use otel::{link, put_under, read_header, rename, traceparent, write_headers};

/// The target of every span, for filters such as `handfast::trace=info`.
const TARGET: &str = "handfast::trace";

/// The header of an event that says within which span it was emitted.
pub(crate) const EVENT_HEADER: &str = handfast_proto::traceparent::HEADER;

/// The whole of a global, in the process that begins it.
pub(crate) fn transaction(name: &str) -> Span {
    let span = info_span!(target: TARGET, "transaction", name, xid = Empty, outcome = Empty);
    rename(&span, || format!("transaction {name}"));
    span
}

/// The start of a saga. Its steps, wherever they run, belong under it.
pub(crate) fn saga(name: &str, key: &str) -> Span {
    let span = info_span!(target: TARGET, "saga", name, key, xid = Empty);
    rename(&span, || format!("saga {name}"));
    span
}

/// A signal to a saga.
pub(crate) fn signal(xid: &Xid, signal: &str) -> Span {
    let span = info_span!(target: TARGET, "signal", %xid, signal);
    rename(&span, || format!("signal {signal}"));
    span
}

/// The cancellation of a saga.
pub(crate) fn cancel(xid: &Xid) -> Span {
    info_span!(target: TARGET, "cancel", %xid)
}

/// Phase one of a branch, on a database of this kind if it is on one.
pub(crate) fn branch(
    xid: &Xid,
    branch: u64,
    resource: &str,
    mode: &'static str,
    database: Option<Dialect>,
) -> Span {
    info_span!(
        target: TARGET, "branch",
        %xid, branch, resource, mode, rows = Empty,
        db.system.name = database.map(system), db.operation.name = Empty,
        db.collection.name = Empty
    )
}

/// The changes of a branch, without a value of any row.
pub(crate) fn record_changes<'a>(
    branch: &Span,
    changes: impl Iterator<Item = (&'static str, &'a str)>,
    rows: usize,
) {
    if branch.is_disabled() {
        return;
    }
    branch.record("rows", rows);
    let (kinds, tables): (Vec<_>, Vec<_>) = changes.unzip();
    let Some((first, further)) = kinds.split_first() else { return };
    // As the conventions of OpenTelemetry name several operations in one.
    let name = match further {
        [] => (*first).to_owned(),
        _ if further.iter().all(|kind| kind == first) => format!("BATCH {first}"),
        _ => "BATCH".to_owned(),
    };
    branch.record("db.operation.name", name);
    if tables.iter().all(|table| *table == tables[0]) {
        branch.record("db.collection.name", tables[0]);
    }
}

/// The name of a database product in the conventions of OpenTelemetry. MariaDB is driven as MySQL.
fn system(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "postgresql",
        Dialect::MySql => "mysql",
        Dialect::Sqlite => "sqlite",
    }
}

/// A request of another process, served within its global.
pub(crate) fn serve<B>(xid: &Xid, request: &http::Request<B>) -> Span {
    let (method, path) = (request.method(), request.uri().path());
    let span = info_span!(target: TARGET, "serve", %xid, %method, path, otel.kind = "server");
    read_header(&span, request.headers());
    rename(&span, || method.to_string());
    span
}

/// The carrying out of a call to a branch, under the coordinator's span and linked to phase one: of
/// phase two, of a question before a commit, or of a step of a saga. `None` if the call asks for
/// nothing.
pub(crate) fn call(call: &PhaseTwoCall, branch: &PhaseTwoBranch) -> Option<Span> {
    let resource = &*call.resource_id;
    let span = match (call.question(), call.decision(), &branch.step) {
        (Question::CanCommit, _, _) => question(resource, "can commit", branch),
        (Question::Prepare, _, _) => question(resource, "prepare", branch),
        (Question::Settle, _, _) => question(resource, "settle", branch),
        (Question::None, Decision::Commit, Some(step)) => {
            self::step(resource, "step", branch, step)
        }
        (Question::None, Decision::RollBack, Some(step)) => {
            self::step(resource, "compensate", branch, step)
        }
        (Question::None, Decision::Commit, None) => phase_two(call, "commit", branch),
        (Question::None, Decision::RollBack, None) => phase_two(call, "roll back", branch),
        (Question::None, Decision::Unspecified, _) => return None,
    };
    Some(span)
}

fn phase_two(call: &PhaseTwoCall, decision: &'static str, branch: &PhaseTwoBranch) -> Span {
    let (resource, branches) = (&*call.resource_id, call.branches.len());
    let span = info_span!(
        target: TARGET, parent: None, "phase two",
        xid = branch.xid, branch = branch.branch_id, resource, branches, decision,
        outcome = Empty, otel.kind = "consumer"
    );
    put_in_place(&span, branch);
    rename(&span, || format!("phase two {decision}"));
    span
}

fn question(resource: &str, question: &'static str, branch: &PhaseTwoBranch) -> Span {
    let span = info_span!(
        target: TARGET, parent: None, "question",
        xid = branch.xid, branch = branch.branch_id, resource, question,
        outcome = Empty, otel.kind = "consumer"
    );
    put_in_place(&span, branch);
    rename(&span, || question.to_owned());
    span
}

fn step(resource: &str, verb: &'static str, branch: &PhaseTwoBranch, step: &SagaStepCall) -> Span {
    let SagaStepCall { saga, key, step, action, .. } = step;
    let span = info_span!(
        target: TARGET, parent: None, "step",
        xid = branch.xid, branch = branch.branch_id, resource, saga, key, step, action,
        outcome = Empty, otel.kind = "consumer"
    );
    put_in_place(&span, branch);
    rename(&span, || format!("{verb} {step}"));
    span
}

fn put_in_place(span: &Span, branch: &PhaseTwoBranch) {
    put_under(span, &branch.traceparent);
    link(span, &branch.branch_traceparent);
}

/// The publishing of an event by a relay, under the span that emitted it.
pub(crate) fn publish(event: &Event) -> Span {
    let (topic, id) = (event.topic(), display(event.id()));
    let span = info_span!(
        target: TARGET, parent: None, "publish",
        topic, event = %id, key = event.key(), outcome = Empty, otel.kind = "producer",
        messaging.operation.type = "send", messaging.destination.name = topic,
        messaging.message.id = id
    );
    put_under(&span, event.header_value(EVENT_HEADER).unwrap_or_default());
    rename(&span, || format!("publish {topic}"));
    span
}

/// The effect of an event on its consumer, in a trace of its own, linked to where it was emitted.
pub(crate) fn process(consumer: &str, event: &Event) -> Span {
    let (topic, id) = (event.topic(), display(event.id()));
    let span = info_span!(
        target: TARGET, "process",
        consumer, topic, event = %id, key = event.key(), otel.kind = "consumer",
        messaging.operation.type = "process", messaging.destination.name = topic,
        messaging.message.id = id
    );
    link(&span, event.header_value(EVENT_HEADER).unwrap_or_default());
    rename(&span, || format!("process {topic}"));
    span
}
