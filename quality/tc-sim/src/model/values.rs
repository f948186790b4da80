//! The content of a model database: rows, undo log, events, and the changes that one local
//! transaction makes to them. Values only; the judge and the workload name them without
//! knowing the database.

use std::fmt;

use handfast_core::{BranchId, Xid};
use handfast_rm_core::fence;

/// A row of the one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(pub(crate) u32);

/// The content of a row, and the branch that wrote it last; `None` for the initial content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowVersion {
    pub(crate) value: i64,
    pub(crate) writer: Option<(Xid, BranchId)>,
}

/// How a change is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoWay {
    /// By the value of before, if the row is as the branch left it.
    Image,
    /// By the opposite change, whatever the value is.
    Sum,
}

/// One change of a row, as the undo log keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoItem {
    pub(crate) way: UndoWay,
    pub(crate) row: RowId,
    pub(crate) before: RowVersion,
    pub(crate) after: RowVersion,
}

/// A row of the undo log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The branch committed locally.
    Log(Vec<UndoItem>),
    /// The branch was rolled back before it committed locally.
    Guard,
}

/// The primary key of the undo log.
pub(crate) type UndoKey = (Xid, BranchId);

/// The key of a row that a branch has changed in a guarded table, as the trigger keeps it.
pub(crate) type KeptRow = (RowId, UndoKey);

/// How a local transaction passes the trigger of a guarded table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterMark {
    /// As a branch, whose rows are kept.
    Branch(UndoKey),
    /// As a rollback, which puts rows back and holds none.
    Pass,
}

/// The guard of a table, as it is written down. Times are microseconds since the start of the run,
/// negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableGuard {
    pub(crate) enabled_at: i64,
    pub(crate) effective_from: i64,
}

/// The number of an event in its outbox.
pub(crate) type Seq = i64;

/// Identifies an event across outboxes, broker and inboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId(pub(crate) u64);

/// An event that a branch emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    pub(crate) key: u32,
    pub(crate) units: i64,
}

/// The progress of an event in its outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// The event waits for its global: its branch still has an undo row (HELD-UNDO).
    Held,
    New,
    Published,
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub(crate) event: Event,
    pub(crate) status: EventStatus,
    /// The branch that emitted it.
    pub(crate) branch: UndoKey,
    /// The token of the claim that is publishing it.
    pub(crate) claimed_by: Option<String>,
}

/// The changes of a local transaction, each with the value before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowChanges {
    pub(crate) rows: Vec<(RowId, RowVersion, RowVersion)>,
    pub(crate) undo: Vec<(UndoKey, Option<Undo>, Option<Undo>)>,
    pub(crate) fences: Vec<(UndoKey, Option<fence::FenceState>, fence::FenceState)>,
    pub(crate) events: Vec<(Seq, Option<EventRow>, Option<EventRow>)>,
    /// Events that took effect in this transaction.
    pub(crate) inbox: Vec<EventId>,
    /// The branch that the transaction was prepared as.
    pub(crate) prepared: Option<UndoKey>,
    /// Keys that the trigger of a guarded table has kept.
    pub(crate) kept: Vec<KeptRow>,
    /// Whether a program wrote the rows that knows of no global.
    pub(crate) from_outside: bool,
}

impl fmt::Display for RowChanges {
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
        for (RowId(row), (xid, branch)) in &self.kept {
            write!(f, "[row {row} kept for {xid}/{branch}] ")?;
        }
        if self.from_outside {
            f.write_str("[from outside] ")?;
        }
        Ok(())
    }
}
