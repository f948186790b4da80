//! The events of a run, in the words that models, processes and the judge share.
//!
//! Models and processes report through [`Observer`] and do not know the judge behind it.

use std::collections::BTreeMap;

use handfast_core::{Change, Decision, Epoch, Xid};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

use super::values::{RowChanges, RowId, RowVersion, TableGuard, UndoKey};

/// Receives observations, in the order in which they happen.
pub(crate) trait Observer: Send + Sync {
    /// Reports what has just happened.
    fn observe(&self, observation: &Observation<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Observation<'o> {
    /// A request has reached a coordinator's process.
    RequestArrived { request: &'o ClientBody },
    /// A reply or a call leaves a coordinator; a reply with the request that it answers.
    ReplySent { server: usize, request: Option<Asked<'o>>, reply: &'o ServerBody },
    /// The lead has changed, or is about to.
    Lead(LeadEvent<'o>),
    /// A batch is durable. The ledger does not have it yet.
    Stored { epoch: Epoch, batch: &'o [Change] },
    /// A batch is durable, and the ledger has it. Reported by the judge itself.
    Recorded { batch: &'o [Change] },
    /// A local transaction has committed. The ledger does not have it yet.
    LocalCommit { database: usize, written: &'o RowChanges },
    /// A local transaction is prepared. The ledger does not have it yet.
    Prepared { branch: UndoKey },
    /// A prepared transaction has ended. Without a branch it is not of this installation.
    PreparedEnded { name: &'o str, branch: Option<UndoKey>, decision: Decision },
    /// A write of a row has met the table's trigger, or none if the table is not guarded. A write
    /// of a branch or of a rollback is reported only if it is refused.
    GuardedWrite(GuardedWrite),
    /// A globally committed read has succeeded.
    CommittedRead { database: usize, read: &'o [(RowId, RowVersion)] },
    /// The caller of a global was given an outcome.
    OutcomeReported { xid: Xid, outcome: ReportedOutcome },
    /// The run is over, and everything has had its time to end.
    Ended { end: &'o FinalState },
}

/// A request that is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'o> {
    pub(crate) body: &'o ClientBody,
    /// When it first arrived on the connection that the answer leaves on.
    pub(crate) at: u64,
}

/// A step from one leader to the next, as the store sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeadEvent<'o> {
    /// A coordinator has laid its mark. Earlier leaders may believe until then that no other one
    /// leads.
    Marked { server: usize, epoch: Epoch, displaced_until: u64 },
    /// The records are read under a mark that is the newest row.
    Read { epoch: Epoch, records: &'o BTreeMap<Vec<u8>, Vec<u8>> },
    /// A leader that was asked to stop gives up the lead.
    Resigned { epoch: Epoch },
}

/// The word of a guard on a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedWrite {
    pub(crate) database: usize,
    pub(crate) row: RowId,
    pub(crate) from_outside: bool,
    /// When the statement began. What it sees may be as old.
    pub(crate) since: u64,
    /// The guard, if one is written down, in effect or not.
    pub(crate) guard: Option<TableGuard>,
    /// The branch for which the write is refused.
    pub(crate) refused_for: Option<UndoKey>,
}

/// The outcome that the caller of a global was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedOutcome {
    Committed,
    /// Every branch is rolled back.
    RolledBack,
    /// The rollback is decided and not finished.
    RollingBack,
    /// A rollback that only an operator can finish.
    NeedsOperator,
    /// Nothing certain: the request had no answer, or the coordinator does not know the global.
    Unknown,
}

/// The state of the installation at the end of a run.
#[derive(Debug, Default)]
pub(crate) struct FinalState {
    /// The processes and transactions that did not end in time.
    pub(crate) unsettled: Vec<String>,
    /// The rows of each database.
    pub(crate) databases: Vec<Vec<(RowId, i64)>>,
    /// The rows of each database at the start.
    pub(crate) at_start: Vec<Vec<(RowId, i64)>>,
    /// Undo rows that are left: database, key, and whether it is a guard.
    pub(crate) undo: Vec<(usize, UndoKey, bool)>,
    /// Transactions that are still prepared: database, and name there.
    pub(crate) prepared: Vec<(usize, String)>,
    /// Rows of which a guard still keeps a key, and that could not be written from outside.
    pub(crate) refused_outside: Vec<String>,
    /// The number of prepared transactions of other installations at the start.
    pub(crate) foreign: usize,
    /// The errors that the audit of the workload's accounts found.
    pub(crate) audit: Vec<String>,
}
