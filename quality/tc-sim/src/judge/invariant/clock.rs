//! GRACE: wherever the machines' clocks are set, no global and no saga is timed out before its
//! timeout has passed in virtual time, and no outcome is forgotten before its retention has.

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    Change, GlobalRecord, GlobalState, Limits, Record, RecordKey, RollbackReason, SagaRecord,
    SagaState, TurnCause, Xid,
};
use handfast_proto::v1::client_message::Body as ClientBody;

use super::Invariant;
use crate::judge::ledger::{Ledger, branch_key, is_finished};
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;
use crate::world::{MS, SECOND};

/// How long a batch may take to be stored, in a store that is stuck.
const STORED_WITHIN: u64 = 30 * SECOND;

/// The error of subtracting times that are rounded to whole milliseconds.
const ROUNDED_MS: u64 = 2;

/// The invariant, with the time of each thing's first observation.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// When the first registration of a branch arrived, for each global.
    registering: BTreeMap<Xid, u64>,
    /// The age of each global at its first branch, by its coordinator's clock, in milliseconds.
    ages_ms: BTreeMap<Xid, u64>,
    starting: BTreeMap<Arc<str>, u64>,
    finished: BTreeMap<Xid, u64>,
}

impl Invariant for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::RequestArrived { request: ClientBody::RegisterBranch(request) } => {
                if let Some((xid, _)) = branch_key(&request.xid, request.branch_id) {
                    self.registering.entry(xid).or_insert(ledger.now);
                }
            }
            Observation::RequestArrived { request: ClientBody::StartSaga(request) } => {
                self.starting.entry(request.key.as_str().into()).or_insert(ledger.now);
            }
            Observation::Recorded { batch } => self.check_batch(ledger, batch, verdict),
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl Clock {
    fn check_batch(&mut self, ledger: &Ledger, batch: &[Change], verdict: &mut Verdict) {
        for change in batch {
            if let Change::Put(Record::Branch(branch)) = change
                && let Some(global) = ledger.globals.get(&branch.xid)
            {
                // A branch that was stored and removed within one batch is not seen here. The next
                // branch may be dated by another process's clock, and then its age is no age.
                if let Some(age_ms) = branch.registered_at.0.checked_sub(global.begun_at.0) {
                    self.ages_ms.entry(branch.xid).or_insert(age_ms);
                }
            }
        }
        for change in batch {
            match change {
                Change::Put(Record::Global(global)) => {
                    self.check_global(ledger.now, global, verdict);
                }
                Change::Put(Record::Saga(saga)) => self.check_saga(ledger.now, saga, verdict),
                Change::Delete(RecordKey::Global(xid) | RecordKey::Saga(xid)) => {
                    self.check_forgotten(ledger.now, *xid, verdict);
                }
                Change::Put(Record::Branch(_) | Record::Lease(_) | Record::Closure(_))
                | Change::Delete(
                    RecordKey::Branch(..) | RecordKey::Lease(_) | RecordKey::Closure,
                ) => {}
            }
        }
    }

    fn check_global(&mut self, now: u64, global: &GlobalRecord, verdict: &mut Verdict) {
        let xid = global.xid;
        if is_finished(global.state) {
            self.finished.entry(xid).or_insert(now);
        }
        let is_timeout = matches!(
            global.state,
            GlobalState::RollingBack(RollbackReason::Timeout)
                | GlobalState::RolledBack(RollbackReason::Timeout, _)
        );
        // A global without a branch has seen one process and so one clock: nothing to compare.
        let Some(registering) = self.registering.get(&xid).filter(|_| is_timeout) else { return };
        let Some(age_ms) = self.ages_ms.get(&xid) else { return };
        let lived_ms = (now - registering) / MS + age_ms;
        let timeout_ms = global.deadline.0 - global.begun_at.0;
        verdict.require(lived_ms + ROUNDED_MS >= timeout_ms, || {
            format!("{xid} has timed out after {lived_ms} of {timeout_ms} ms")
        });
    }

    fn check_saga(&mut self, now: u64, saga: &SagaRecord, verdict: &mut Verdict) {
        if saga.ended_at().is_some() {
            self.finished.entry(saga.xid).or_insert(now);
        }
        let (SagaState::Compensating(cause) | SagaState::Compensated(cause, _)) = saga.state else {
            return;
        };
        let Some(starting) = self.starting.get(&saga.key) else { return };
        let timeout_ms = saga.definition.timeout_ms.filter(|_| cause == TurnCause::Timeout);
        let lived_ms = (now - starting) / MS;
        let in_time = timeout_ms.is_none_or(|timeout_ms| lived_ms + ROUNDED_MS >= timeout_ms);
        verdict.require(in_time, || {
            format!("saga {} has timed out after {lived_ms} of {timeout_ms:?} ms", saga.xid)
        });
    }

    fn check_forgotten(&self, now: u64, xid: Xid, verdict: &mut Verdict) {
        let Some(finished) = self.finished.get(&xid) else { return };
        let kept = now - finished + STORED_WITHIN;
        verdict.require(kept >= Limits::default().retention_ms * MS, || {
            format!("{xid} is forgotten {} s after its end", (now - finished) / SECOND)
        });
    }
}
