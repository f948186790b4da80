//! The work of a branch: changes of rows, and events that tell others of them.

use crate::model::values::RowId;

/// A change of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) row: RowId,
    pub(crate) delta: i64,
}

/// An event to be emitted. It gets its id when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventDraft {
    pub(crate) key: u32,
    pub(crate) units: i64,
}
