//! The rows of a branch that cannot be rolled back without an operator, as the RM has found them.

/// The rows of a refused branch, and the events that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedRows {
    /// The rows, the dirty ones first; not all of them where there are many.
    pub listed: Vec<DirtyRow>,
    /// How many rows the branch has written, listed or not.
    pub total: u64,
    /// How many of them are dirty.
    pub dirty: u64,
    /// How many events the branch holds, if it is known.
    pub held_events: Option<u64>,
}

/// A row that a refused branch has written, with what each resolution would do to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyRow {
    /// The table.
    pub table: String,
    /// The key, for operators.
    pub key: String,
    /// The columns in question.
    pub columns: Vec<DirtyColumn>,
    /// How it compares with its images.
    pub standing: RowStanding,
    /// The change that [`Resolution::RestoreClean`](super::Resolution::RestoreClean) would make, if
    /// it is known.
    pub on_restore_clean: Option<RowChange>,
    /// The change that [`Resolution::ForceBefore`](super::Resolution::ForceBefore) would make, if
    /// it is known.
    pub on_force_before: Option<RowChange>,
}

/// How a row of a refused branch compares with its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowStanding {
    /// Neither its after image nor its before image.
    Dirty,
    /// Its after image.
    Clean,
    /// Its before image: it is back already.
    Restored,
}

/// The change that a resolution makes to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// Nothing: it stays as it is, or stays missing.
    Left,
    /// The before image is written over it.
    WrittenBack,
    /// It is removed.
    Removed,
    /// It is inserted again.
    Inserted,
}

/// One column of a dirty row in the database's text form; `None` is NULL, or a missing row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyColumn {
    /// The column.
    pub name: String,
    /// The value that the global found.
    pub before: Option<String>,
    /// The value that the global wrote.
    pub after: Option<String>,
    /// The current value.
    pub current: Option<String>,
}
