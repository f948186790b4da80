//! Shows every observation to every invariant, then enters it into the ledger.

use std::fmt;

use handfast_proto::v1::RegisterBranchReply;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

use super::invariant::{self, Invariant};
use super::ledger::Ledger;
use super::verdict::{Verdict, Violation};
use crate::model::observation::{Asked, LeadEvent, Observation};

/// All invariants, and the ledger that they judge by.
pub(crate) struct Oracle {
    ledger: Ledger,
    invariants: Vec<Box<dyn Invariant>>,
    verdict: Verdict,
    violations: Vec<Violation>,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            ledger: Ledger::default(),
            invariants: invariant::all(),
            verdict: Verdict::default(),
            violations: Vec::new(),
        }
    }

    /// Judges an observation and returns the violations found.
    ///
    /// Invariants see the ledger as it was before: most of them compare what happens with what was
    /// certain until then.
    pub(super) fn observe(&mut self, now: u64, observation: &Observation<'_>) -> Vec<Violation> {
        let before = self.violations.len();
        self.ledger.now = now;
        self.judge(now, observation);
        match observation {
            Observation::Stored { batch, .. } => {
                self.ledger.store(batch);
                self.judge(now, &Observation::Recorded { batch });
            }
            Observation::Lead(LeadEvent::Marked { .. }) => self.ledger.leads += 1,
            Observation::LocalCommit { database, written } => {
                self.ledger.commit(*database, written);
            }
            Observation::GuardedWrite(write) => self.ledger.meet_guard(write),
            Observation::ReplySent {
                request: Some(Asked { body: ClientBody::RegisterBranch(request), .. }),
                reply: ServerBody::RegisterBranch(RegisterBranchReply { decides: true, .. }),
                ..
            } => self.ledger.tell(request),
            Observation::Prepared { branch, .. } => {
                self.ledger.prepared.insert(*branch);
            }
            Observation::PreparedEnded { branch: Some(branch), decision, .. } => {
                self.ledger.end_prepared(*branch, *decision);
            }
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(LeadEvent::Read { .. } | LeadEvent::Resigned { .. })
            | Observation::Recorded { .. }
            | Observation::PreparedEnded { branch: None, .. }
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
        self.violations[before..].to_vec()
    }

    /// Adds a violation that was found elsewhere.
    pub(super) fn add_violation(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the number of checks so far.
    pub(crate) fn checks(&self) -> u64 {
        self.verdict.checks()
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn judge(&mut self, now: u64, observation: &Observation<'_>) {
        for invariant in &mut self.invariants {
            invariant.observe(&self.ledger, observation, &mut self.verdict);
            let name = invariant.name();
            let found = self.verdict.take_broken().into_iter();
            self.violations.extend(found.map(|what| Violation { invariant: name, at: now, what }));
        }
    }
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle").field("violations", &self.violations).finish_non_exhaustive()
    }
}
