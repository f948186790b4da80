//! The events of a run, in the words that models, processes and the judge share.
//!
//! Models and processes report through [`Observer`] and do not know the judge behind it.

use handfast_core::{Change, Decision, Xid};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

use super::values::{RowChanges, RowId, RowVersion, UndoKey};

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
    ReplySent { request: Option<&'o ClientBody>, reply: &'o ServerBody },
    /// A batch is durable. The ledger does not have it yet.
    Stored { batch: &'o [Change] },
    /// A batch is durable, and the ledger has it. Reported by the judge itself.
    Recorded { batch: &'o [Change] },
    /// A local transaction has committed. The ledger does not have it yet.
    LocalCommit { database: usize, written: &'o RowChanges },
    /// A local transaction is prepared. The ledger does not have it yet.
    Prepared { branch: UndoKey },
    /// A prepared transaction has ended. Without a branch it is not of this installation.
    PreparedEnded { name: &'o str, branch: Option<UndoKey>, decision: Decision },
    /// A globally committed read has succeeded.
    CommittedRead { database: usize, read: &'o [(RowId, RowVersion)] },
    /// The launcher of a global was given an outcome.
    OutcomeReported { xid: Xid, outcome: ReportedOutcome },
    /// The run is over, and everything has had its time to end.
    Ended { end: &'o FinalState },
}

/// The outcome that the launcher of a global was given.
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
    /// The number of prepared transactions of other installations at the start.
    pub(crate) foreign: usize,
    /// The errors that the audit of the workload's accounts found.
    pub(crate) audit: Vec<String>,
}
