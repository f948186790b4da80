//! A change of leader harms no healthy global. One with a branch is rolled back because its client
//! asked for it, or because its time ran out after the change; a leader that is asked to stop
//! leaves every global behind that it has begun.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{
    BranchId, Change, Epoch, GlobalRecord, GlobalState, Limits, Record, RollbackReason, Xid,
    XidText,
};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{Decision, EndRequest};

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::{LeadEvent, Observation};
use crate::world::MS;

/// The error of subtracting times that are rounded to whole milliseconds.
const ROUNDED: u64 = 2 * MS;

/// The invariant, with what clients have asked for, and the globals that were begun.
#[derive(Debug, Default)]
pub(super) struct ChangeOfLeader {
    /// When the newest mark was laid, and its epoch.
    led_since: (u64, Epoch),
    asked_to_end: BTreeSet<Xid>,
    asked_to_roll_back: BTreeSet<Xid>,
    /// The epoch in which each coordinator led last.
    epochs: BTreeMap<usize, Epoch>,
    /// The epoch in which each global was begun, and when it runs out at the earliest. That epoch
    /// is not in its XID if an earlier leader has lent it.
    begun: BTreeMap<Xid, (Epoch, u64)>,
}

impl Invariant for ChangeOfLeader {
    fn name(&self) -> &'static str {
        "change_of_leader"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::RequestArrived { request: ClientBody::End(request) } => {
                self.note_end(request);
            }
            Observation::ReplySent {
                server,
                request: Some(asked),
                reply: ServerBody::Begin(reply),
            } => {
                if let Ok(XidText { xid, .. }) = XidText::parse(&reply.xid) {
                    let epoch = self.epochs.get(server).copied().unwrap_or_default();
                    self.begun.insert(xid, (epoch, asked.at + reply.timeout_ms * MS));
                }
            }
            Observation::Lead(LeadEvent::Marked { server, epoch, .. }) => {
                self.led_since = (ledger.now, *epoch);
                self.epochs.insert(*server, *epoch);
            }
            Observation::Lead(LeadEvent::Resigned { epoch }) => {
                self.check_resigned(ledger, *epoch, verdict);
            }
            Observation::Stored { batch, .. } => {
                for change in *batch {
                    if let Change::Put(Record::Global(global)) = change {
                        self.check_global(ledger, global, verdict);
                    }
                }
            }
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(LeadEvent::Read { .. })
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl ChangeOfLeader {
    fn note_end(&mut self, request: &EndRequest) {
        let Ok(XidText { xid, .. }) = XidText::parse(&request.xid) else { return };
        self.asked_to_end.insert(xid);
        if request.decision() == Decision::RollBack {
            self.asked_to_roll_back.insert(xid);
        }
    }

    /// Checks a global that is stored with a branch and becomes one that rolls back.
    fn check_global(&self, ledger: &Ledger, global: &GlobalRecord, verdict: &mut Verdict) {
        let (GlobalState::RollingBack(reason) | GlobalState::RolledBack(reason, _)) = global.state
        else {
            return;
        };
        let xid = global.xid;
        let is_undecided = ledger.globals.contains_key(&xid) && ledger.decision(xid).is_none();
        let mut branches = ledger.branches.range((xid, BranchId(0))..=(xid, BranchId(u64::MAX)));
        if !is_undecided || branches.next().is_none() {
            return;
        }
        let is_due = match reason {
            RollbackReason::Requested => self.asked_to_roll_back.contains(&xid),
            RollbackReason::Timeout => self.has_had_its_grace(ledger.now, global),
            RollbackReason::BranchUnknown | RollbackReason::Refused => true,
            RollbackReason::Operator => false,
        };
        verdict.require(is_due, || {
            let (since, epoch) = self.led_since;
            format!(
                "{xid} is rolled back ({reason}) {} ms after epoch {} began, for no reason of its \
                 own",
                (ledger.now - since) / MS,
                epoch.0
            )
        });
    }

    /// GRACE: all that was there at a change of leader has its whole length again, or the grace if
    /// that is shorter.
    fn has_had_its_grace(&self, now: u64, global: &GlobalRecord) -> bool {
        let (since, _) = self.led_since;
        let length_ms = global.deadline.0.saturating_sub(global.begun_at.0);
        let grace_ms = length_ms.min(Limits::default().restart_grace_ms);
        let was_there = !self.begun_since(global.xid);
        !was_there || now + ROUNDED >= since + grace_ms * MS
    }

    /// Returns whether a global was begun under the newest mark.
    fn begun_since(&self, xid: Xid) -> bool {
        xid.0 >> 40 >= self.led_since.1.0
    }

    /// Checks that every begun global is stored that has neither ended nor run out.
    fn check_resigned(&self, ledger: &Ledger, epoch: Epoch, verdict: &mut Verdict) {
        let own = self.begun.iter().filter(|(_, (begun_in, _))| *begun_in == epoch);
        for (xid, (_, runs_out_at)) in own {
            let is_over = ledger.now + ROUNDED >= *runs_out_at || self.asked_to_end.contains(xid);
            verdict.require(is_over || ledger.globals.contains_key(xid), || {
                format!("{xid} was begun, and a planned stop of epoch {} forgot it", epoch.0)
            });
        }
    }
}
