//! The judge: hears of everything that happens, and asks each invariant whether it still holds.

use std::fmt;

use handfast_core::{BranchId, Change, Decision, Xid};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_rm_core::fence;

use crate::database::{Cell, EventId, EventRow, RowId, Seq, Undo, UndoKey};
use crate::invariant::{self, Invariant};
use crate::ledger::Ledger;

/// What a local transaction changed, each with what was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: Vec<(RowId, Cell, Cell)>,
    pub(crate) undo: Vec<(UndoKey, Option<Undo>, Option<Undo>)>,
    pub(crate) fences: Vec<(UndoKey, Option<fence::State>, fence::State)>,
    pub(crate) events: Vec<(Seq, Option<EventRow>, Option<EventRow>)>,
    /// Events that took effect with it.
    pub(crate) inbox: Vec<EventId>,
    /// The branch that it was prepared as.
    pub(crate) prepared: Option<UndoKey>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, before, after) in &self.rows {
            write!(f, "[row {}: {} to {}] ", row.0, before.value, after.value)?;
        }
        for ((xid, branch), _, after) in &self.undo {
            let what = match after {
                Some(Undo::Log(_)) => "undo log",
                Some(Undo::Guard) => "guard",
                None => "undo log gone",
            };
            write!(f, "[{xid}/{branch} {what}] ")?;
        }
        for ((xid, branch), _, after) in &self.fences {
            write!(f, "[{xid}/{branch} {after}] ")?;
        }
        for (seq, _, after) in &self.events {
            let what = after.as_ref().map_or("gone".to_owned(), |row| format!("{:?}", row.status));
            write!(f, "[event {seq} {what}] ")?;
        }
        for EventId(id) in &self.inbox {
            write!(f, "[effect of {id:x}] ")?;
        }
        Ok(())
    }
}

/// What the launcher of a global was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is committed.
    Committed,
    /// It is rolled back, all of it.
    RolledBack,
    /// It is being rolled back.
    RollingBack,
    /// A person has to look.
    NeedsOperator,
    /// Nothing certain.
    Unknown,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Observation<'o> {
    /// A request has reached a coordinator's process.
    Asked { ask: &'o Ask },
    /// An answer or a call leaves a coordinator, with what it answers.
    Answered { ask: Option<&'o Ask>, answer: &'o Answer },
    /// A batch is durable. The ledger does not have it yet.
    Stored { batch: &'o [Change] },
    /// The ledger has the batch.
    Booked { batch: &'o [Change] },
    /// A local transaction has committed. The ledger does not have it yet.
    LocalCommit { database: usize, written: &'o Written },
    /// A local transaction is prepared. The ledger does not have it yet.
    Prepared { branch: UndoKey },
    /// A prepared transaction has ended; without a branch it is not of this installation.
    PreparedEnded { name: &'o str, branch: Option<UndoKey>, decision: Decision },
    /// A globally committed read has ended well.
    CommittedRead { database: usize, read: &'o [(RowId, Cell)] },
    /// A launcher knows how its global ended.
    Told { xid: Xid, told: Told },
    /// The run is over, and everything has had its time to end.
    Ended { ending: &'o Ending },
}

/// How everything stands at the end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// What did not come to its end in time.
    pub(crate) unsettled: Vec<String>,
    /// What each database holds.
    pub(crate) databases: Vec<Vec<(RowId, i64)>>,
    /// What each database held at the start.
    pub(crate) at_start: Vec<Vec<(RowId, i64)>>,
    /// Undo rows that are left: which database, and whether it is a guard.
    pub(crate) undo: Vec<(usize, UndoKey, bool)>,
    /// What is still prepared: which database, and its name there.
    pub(crate) prepared: Vec<(usize, String)>,
    /// How many prepared transactions of others there were at the start.
    pub(crate) foreign: usize,
    /// What is wrong with the books.
    pub(crate) audit: Vec<String>,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// When, in microseconds of virtual time.
    pub at: u64,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Where an invariant says what it found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    checks: u64,
    broken: Vec<String>,
}

impl Verdict {
    /// Counts a check; without the condition it is a violation.
    pub(crate) fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.broken.push(otherwise());
        }
    }
}

/// All invariants and the book they judge by.
pub(crate) struct Oracle {
    ledger: Ledger,
    invariants: Vec<Box<dyn Invariant>>,
    verdict: Verdict,
    violations: Vec<Violation>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            ledger: Ledger::default(),
            invariants: invariant::all(),
            verdict: Verdict::default(),
            violations: Vec::new(),
        }
    }

    /// Hears of something; gives back what is wrong with it.
    pub(crate) fn observe(&mut self, now: u64, observation: &Observation<'_>) -> Vec<Violation> {
        let before = self.violations.len();
        self.ledger.now = now;
        self.judge(now, observation);
        match observation {
            Observation::Stored { batch } => {
                self.ledger.store(batch);
                self.judge(now, &Observation::Booked { batch });
            }
            Observation::LocalCommit { database, written } => {
                self.ledger.commit(*database, written);
            }
            Observation::Prepared { branch, .. } => {
                self.ledger.prepared.insert(*branch);
            }
            Observation::PreparedEnded { branch: Some(branch), decision, .. } => {
                self.ledger.end_prepared(*branch, *decision);
            }
            Observation::Asked { .. }
            | Observation::Answered { .. }
            | Observation::Booked { .. }
            | Observation::PreparedEnded { branch: None, .. }
            | Observation::CommittedRead { .. }
            | Observation::Told { .. }
            | Observation::Ended { .. } => {}
        }
        self.violations[before..].to_vec()
    }

    /// Takes a violation from elsewhere.
    pub(crate) fn accuse(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn checks(&self) -> u64 {
        self.verdict.checks
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn judge(&mut self, now: u64, observation: &Observation<'_>) {
        for invariant in &mut self.invariants {
            invariant.observe(&self.ledger, observation, &mut self.verdict);
            let name = invariant.name();
            let found = self.verdict.broken.drain(..);
            self.violations.extend(found.map(|what| Violation { invariant: name, at: now, what }));
        }
    }
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle").field("violations", &self.violations).finish_non_exhaustive()
    }
}

/// Which branch a registration is for.
pub(crate) fn branch_of(xid: &str, branch: u64) -> Option<(Xid, BranchId)> {
    let xid = handfast_core::XidText::parse(xid).ok()?.xid;
    Some((xid, BranchId(branch)))
}
