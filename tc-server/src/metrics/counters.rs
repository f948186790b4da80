//! Counters of what has happened to transactions and sagas. They count from the start of the
//! process, and each node counts what it has led.

use handfast_core::{
    Change, ChildRef, GlobalState, Record, RollbackReason, SagaState, StepRef, TurnCause,
};
use metrics::Unit;

use crate::recent;

/// Counts the globals that have ended.
const GLOBALS_ENDED: &str = "handfast_globals_total";
/// Counts the sagas that have ended.
const SAGAS_ENDED: &str = "handfast_sagas_total";
/// Counts the requests that were refused because they would have closed a cycle of waiters.
const DEADLOCKS: &str = "handfast_deadlocks_total";
/// Counts the rollbacks of branches that found a dirty write.
const DIRTY_WRITES: &str = "handfast_dirty_writes_total";
/// Counts the calls of phase two that were made again.
const RETRIES: &str = "handfast_phase_two_retries_total";

/// Counts the alerts of the webhook.
const ALERTS: &str = "handfast_webhook_alerts_total";
/// Counts the spans for the collector.
const SPANS: &str = "handfast_spans_total";

const MEANINGS: [(&str, &str); 7] = [
    (GLOBALS_ENDED, "transactions that have ended, by outcome and reason"),
    (SAGAS_ENDED, "sagas that have ended, by outcome and cause"),
    (DEADLOCKS, "requests refused as part of a deadlock"),
    (DIRTY_WRITES, "rollbacks of branches that found a dirty write"),
    (RETRIES, "calls of phase two, and votes, that were made again"),
    (ALERTS, "alerts for the webhook's receiver, by result"),
    (SPANS, "spans for the collector of traces, by result"),
];

const REASONS: [RollbackReason; 5] = [
    RollbackReason::Requested,
    RollbackReason::Timeout,
    RollbackReason::BranchUnknown,
    RollbackReason::Operator,
    RollbackReason::Refused,
];

/// One of each kind: its step does not matter.
const CAUSES: [TurnCause; 7] = [
    TurnCause::Refused(StepRef(0)),
    TurnCause::Exhausted(StepRef(0)),
    TurnCause::StepTimeout(StepRef(0)),
    TurnCause::ChildTimeout(ChildRef(0)),
    TurnCause::Timeout,
    TurnCause::Cancelled,
    TurnCause::Operator,
];

/// The end of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlertResult {
    /// The receiver has taken it.
    Delivered,
    /// No attempt has succeeded.
    GivenUp,
    /// There was no room in the queue.
    Dropped,
}

/// The end of a span of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanResult {
    /// The collector has taken it.
    Exported,
    /// The collector was not reached, or refused it.
    Failed,
    /// There was no room in the queue.
    Dropped,
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    MEANINGS.iter().map(|(name, _)| *name)
}

/// Describes the counters, and sets them to 0: what has not happened yet is not missing, so that an
/// alarm can be set on its growth.
pub(super) fn register() {
    for (name, meaning) in MEANINGS {
        metrics::describe_counter!(name, Unit::Count, meaning);
    }
    for name in [DEADLOCKS, DIRTY_WRITES, RETRIES] {
        metrics::counter!(name).absolute(0);
    }
    globals_ended("committed", "").absolute(0);
    for reason in REASONS {
        globals_ended("rolled_back", reason_label(reason)).absolute(0);
    }
    sagas_ended("completed", "").absolute(0);
    for result in [AlertResult::Delivered, AlertResult::GivenUp, AlertResult::Dropped] {
        alerts(result).absolute(0);
    }
    for result in [SpanResult::Exported, SpanResult::Failed, SpanResult::Dropped] {
        spans(result).absolute(0);
    }
    for cause in CAUSES {
        sagas_ended("compensated", cause_label(cause)).absolute(0);
    }
}

/// Counts the globals and sagas that end with these changes. Each is stored as ended once.
pub(crate) fn count_ended(changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(Record::Global(record)) => match record.state {
                GlobalState::Committed(_) => {
                    globals_ended("committed", "").increment(1);
                    recent::record_committed();
                }
                GlobalState::RolledBack(reason, _) => {
                    globals_ended("rolled_back", reason_label(reason)).increment(1);
                    recent::record_rolled_back();
                }
                GlobalState::Active | GlobalState::Committing | GlobalState::RollingBack(_) => {}
            },
            Change::Put(Record::Saga(record)) => match record.state {
                SagaState::Completed(_) => sagas_ended("completed", "").increment(1),
                SagaState::Compensated(cause, _) => {
                    sagas_ended("compensated", cause_label(cause)).increment(1);
                }
                SagaState::Running | SagaState::Compensating(_) => {}
            },
            Change::Put(Record::Branch(_) | Record::Lease(_) | Record::Closure(_))
            | Change::Delete(_) => {}
        }
    }
}

pub(crate) fn count_deadlock() {
    metrics::counter!(DEADLOCKS).increment(1);
}

pub(crate) fn count_dirty_write() {
    metrics::counter!(DIRTY_WRITES).increment(1);
}

pub(crate) fn count_retries(count: u64) {
    // Most rounds have none, and a look-up costs more than the question.
    if count > 0 {
        metrics::counter!(RETRIES).increment(count);
    }
}

pub(crate) fn count_alert(result: AlertResult) {
    alerts(result).increment(1);
}

pub(crate) fn count_spans(result: SpanResult, count: usize) {
    spans(result).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

fn spans(result: SpanResult) -> metrics::Counter {
    let label = match result {
        SpanResult::Exported => "exported",
        SpanResult::Failed => "failed",
        SpanResult::Dropped => "dropped",
    };
    metrics::counter!(SPANS, "result" => label)
}

fn alerts(result: AlertResult) -> metrics::Counter {
    let label = match result {
        AlertResult::Delivered => "delivered",
        AlertResult::GivenUp => "given_up",
        AlertResult::Dropped => "dropped",
    };
    metrics::counter!(ALERTS, "result" => label)
}

fn globals_ended(outcome: &'static str, reason: &'static str) -> metrics::Counter {
    metrics::counter!(GLOBALS_ENDED, "outcome" => outcome, "reason" => reason)
}

fn sagas_ended(outcome: &'static str, cause: &'static str) -> metrics::Counter {
    metrics::counter!(SAGAS_ENDED, "outcome" => outcome, "cause" => cause)
}

/// Returns the name of the reason in the admin API.
fn reason_label(reason: RollbackReason) -> &'static str {
    match reason {
        RollbackReason::Requested => "requested",
        RollbackReason::Timeout => "timeout",
        RollbackReason::BranchUnknown => "branch_unknown",
        RollbackReason::Operator => "operator",
        RollbackReason::Refused => "refused",
    }
}

fn cause_label(cause: TurnCause) -> &'static str {
    match cause {
        TurnCause::Refused(_) => "refused",
        TurnCause::Exhausted(_) => "attempts",
        TurnCause::StepTimeout(_) => "step_timeout",
        TurnCause::ChildTimeout(_) => "child_timeout",
        TurnCause::Timeout => "timeout",
        TurnCause::Cancelled => "cancelled",
        TurnCause::Operator => "operator",
    }
}
