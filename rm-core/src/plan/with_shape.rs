//! The plan of a PostgreSQL statement with writes in its WITH.

use super::Query;

/// A statement with writes in its WITH, as one query. A row of its answer is one of the
/// application's or one image of one part.
///
/// Layout of a row: the application's columns, the number of the row if it is the application's
/// (else NULL), whether parts have met if `may_meet`, then the columns of each part: as of every
/// image. Behind them an UPDATE has the image columns once more, as they were before; an upsert has
/// whether the row was inserted, and then the columns of an image of a row that it could meet, as
/// it was before, which is a row of the answer by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithWrites {
    /// The statement to run.
    pub query: Query,
    /// The writes, in the order of the layout.
    pub parts: Vec<WithPart>,
    /// The undo items in their order.
    pub order: Vec<WithUndo>,
    /// How many rows the statement has affected.
    pub count: WithCount,
    /// Whether a column says that two parts have met in a row. Which of them has changed it depends
    /// on the order in which they ran, so that the statement must be refused then.
    pub may_meet: bool,
}

/// One write of [`WithWrites`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithPart {
    /// The place of its table among the statement's.
    pub table: usize,
    /// The effect, and the image columns.
    pub kind: WithPartKind,
    /// A locking read of the rows of a DELETE from a table to which foreign keys with an action
    /// refer, to run before the statement. No other row may go along with these, and the statement
    /// may delete no other, or it must be refused.
    pub before: Option<Query>,
}

/// The effect of a [`WithPart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WithPartKind {
    /// Rows are inserted.
    Insert {
        /// The image columns.
        columns: Vec<usize>,
    },
    /// Rows are updated.
    Update {
        /// The image columns.
        columns: Vec<usize>,
        /// As of [`Update::maintained`](super::Update::maintained).
        maintained: Vec<usize>,
    },
    /// Rows are deleted.
    Delete {
        /// The image columns.
        columns: Vec<usize>,
    },
    /// Rows are inserted, or updated if they are there. A row that was updated without having been
    /// found before must be refused: another transaction has put it there in between.
    Upsert {
        /// The image columns.
        columns: Vec<usize>,
    },
}

impl WithPartKind {
    /// The image columns.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        match self {
            Self::Insert { columns }
            | Self::Update { columns, .. }
            | Self::Delete { columns }
            | Self::Upsert { columns } => columns,
        }
    }
}

/// One undo item of [`WithWrites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithUndo {
    /// The part whose rows it restores.
    pub part: usize,
    /// The effect of the part on them.
    pub effect: WithEffect,
}

/// The effect of a part on the rows of one undo item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WithEffect {
    /// They are gone.
    Deleted,
    /// They were changed.
    Updated,
    /// They were not there before.
    Inserted,
}

/// How many rows a [`WithWrites`] has affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithCount {
    /// As many as the application gets: the statement behind WITH is a read.
    Rows,
    /// As many as a part has images: it is the statement behind WITH.
    Part(usize),
}
