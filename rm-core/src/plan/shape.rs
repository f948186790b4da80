//! The parts of a plan: the queries around a change, and how their rows are laid out.
//!
//! Layout of every image row, also where it comes from RETURNING: the columns that the plan lists
//! in `columns`, in that order, then the text of each primary key part in key order. Where the
//! statement returns columns of its own these come first, so count ours from the end of the row.

use super::{
    ComposedUpdate, Delta, NumberedKey, RowDelta, StatementRefusal,
    keyed::JointQuery,
    query::{GeneratedKeys, KeyedQuery, Query, SelectedRows},
    with_shape::WithWrites,
};

/// The plan of one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Run the user's statement as it is: nothing to undo, nothing to lock.
    Pass,
    /// Run a read whose rows are locked globally.
    LockingRead(LockingRead),
    /// Run a read of several tables, or of groups of rows, whose rows are locked globally.
    JoinedRead(JoinedRead),
    /// UPDATE of one table.
    Update(Update),
    /// DELETE of one table.
    Delete(Delete),
    /// INSERT that changes no row that exists: also one that skips conflicting rows where the
    /// database reports which rows it did insert.
    Insert(Insert),
    /// INSERT that may change or remove rows that exist.
    Upsert(Upsert),
    /// INSERT of the rows of a query, read before: on MySQL, and an upsert on SQLite.
    Selected(SelectedRows),
    /// MySQL: UPDATE or DELETE of several tables.
    Several(Several),
    /// PostgreSQL: a statement with writes in its WITH.
    With(WithWrites),
}

impl Plan {
    /// The columns of its images, those of each table with its place among the statement's.
    ///
    /// `own` is the place of the table that the plan is about, as
    /// [`Statement::plan`](super::Statement::plan) returns it.
    #[must_use]
    pub fn image_columns(&self, own: usize) -> Vec<(usize, &[usize])> {
        match self {
            Self::Update(plan) => vec![(own, &plan.columns)],
            Self::Delete(plan) => vec![(own, &plan.columns)],
            Self::Insert(plan) => vec![(own, &plan.columns)],
            Self::Upsert(plan) => vec![(own, &plan.columns)],
            Self::Several(plan) => {
                plan.parts.iter().map(|part| (part.table, &*part.columns)).collect()
            }
            Self::With(plan) => {
                plan.parts.iter().map(|part| (part.table, part.kind.columns())).collect()
            }
            Self::Pass | Self::LockingRead(_) | Self::JoinedRead(_) | Self::Selected(_) => {
                Vec::new()
            }
        }
    }

    /// Returns whether a read of rows comes first, whose answer is not for the application.
    #[must_use]
    pub fn reads_first(&self) -> bool {
        match self {
            Self::Update(plan) => matches!(plan.image, UpdateImage::Read { .. }),
            Self::Delete(plan) => matches!(plan.image, DeleteImage::Read { .. }),
            Self::Pass
            | Self::LockingRead(_)
            | Self::JoinedRead(_)
            | Self::Insert(_)
            | Self::Upsert(_)
            | Self::Selected(_)
            | Self::Several(_)
            | Self::With(_) => false,
        }
    }
}

/// How a change runs, once its before image is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// By its own WHERE, which depends on nothing but the row itself: every imaged row is locked
    /// and still matches, so that as many rows changed as imaged means the same rows. More rows
    /// than imaged: another transaction added a row in between; the change must be refused.
    ByPredicate(Query),
    /// By key, in chunks if need be, because the WHERE could choose other rows the second time
    /// (sub-select, LIMIT, clock, random). Exactly the imaged rows must have been changed.
    ByKey(KeyedQuery),
}

/// UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The image columns: the key, the assigned and the database-maintained ones, in table order;
    /// every column that can be written where the key may change.
    pub columns: Vec<usize>,
    /// The columns the statement assigns, those of the key left out that it leaves as they are:
    /// restored, and compared before they are restored.
    pub assigned: Vec<usize>,
    /// Columns that the database changes along (ON UPDATE, own-row triggers): restored where they
    /// changed, never compared.
    pub maintained: Vec<usize>,
    /// The source of the images.
    pub image: UpdateImage,
    /// Whether the rows of a before image that is read end in the name of a constraint that they
    /// break, or NULL. A row that breaks one must not be changed: it could not be put back.
    pub judged: bool,
    /// The effect on the keys of the rows.
    pub keys: KeyChange,
    /// Whether the user asked for rows; if not, the rows of the change are ours alone.
    pub user_returning: bool,
    /// The changes of counters that the statement consists of; none if it does anything else.
    pub deltas: Vec<Delta>,
    /// Reads the key of the row that such a statement names, without a lock, if it would change it:
    /// no columns, then the key texts.
    pub key_read: Option<Query>,
    /// The key of the only row that it can change, where it gives that as whole numbers.
    pub numbered_key: Option<Box<NumberedKey>>,
    /// The changes of counters in numbers, where the row and all that is asked of it are given by
    /// numbers alone.
    pub row_delta: Option<Box<RowDelta>>,
    /// The same statement with its undo row, where its row is given by whole numbers and the
    /// database can compose both.
    pub composed: Option<Box<ComposedUpdate>>,
}

/// The effect of a change on the keys of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// It leaves them as they are.
    Never,
    /// A row may get another key. The images are whole rows: one whose key has changed counts as a
    /// row that is gone and one that was inserted.
    Possible {
        /// The columns of the image of a row whose key is as it was.
        kept: Vec<usize>,
        /// MySQL, which returns no rows: how the key that a row will have is known beforehand. Only
        /// that of a single row.
        foretold: Option<ForetoldKey>,
        /// Why such a row could not be undone. One that has changed its key all the same must be
        /// refused.
        obstacle: Option<StatementRefusal>,
    },
}

impl KeyChange {
    /// The items in front of the rows of the before image.
    pub(super) fn items(&self) -> &[String] {
        match self {
            Self::Possible { foretold: Some(foretold), .. } => &foretold.items,
            Self::Possible { foretold: None, .. } | Self::Never => &[],
        }
    }
}

/// The key that a change will give a row, as the read before it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForetoldKey {
    /// The key columns that the change assigns, each with the place at the front of the row where
    /// its value stands, a time as one, others as a text.
    pub parts: Vec<(usize, usize)>,
    /// The items at the front of the row: those texts, and what takes the arguments of the other
    /// assignments.
    pub(super) items: Vec<String>,
}

/// The source of the images of an UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateImage {
    /// One statement reads and locks the rows, changes those it read, and returns both images of
    /// each: after the key texts stand the image columns once more, as they were before.
    Together(Query),
    /// A locking read, then the change.
    Read {
        /// The before image, locking its rows.
        before: Query,
        /// The change. Returns the after image if `returns_after`, else read it by key.
        change: Change,
        /// Whether the change's own rows end in the after image.
        returns_after: bool,
    },
}

/// UPDATE or DELETE of several tables by one statement. All images are read before anything is
/// changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    /// The written tables, in the order of their undo items.
    pub parts: Vec<SeveralPart>,
    /// The change of the imaged rows.
    pub change: SeveralChange,
}

/// One written table of [`Several`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeveralPart {
    /// The place of its table among the statement's.
    pub table: usize,
    /// The image columns.
    pub columns: Vec<usize>,
    /// As of [`Update::maintained`].
    pub maintained: Vec<usize>,
    /// The before image, locking its rows. It may show a row several times.
    pub before: Query,
    /// As of [`Update::judged`].
    pub judged: bool,
}

/// The change of [`Several`]. As many rows must be changed as were imaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeveralChange {
    /// The statement itself, for rows named by key. The after images are read by key.
    Update(JointQuery),
    /// A DELETE for each part, in their order.
    Delete(Vec<KeyedQuery>),
}

/// DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The image columns: every column that can be written.
    pub columns: Vec<usize>,
    /// The source of the before image.
    pub image: DeleteImage,
    /// As of [`Update::judged`].
    pub judged: bool,
    /// Whether foreign keys may delete or change rows of other tables along with the rows: these
    /// have to be found before the change. The rows are then read first, and named by the change.
    pub acts: bool,
    /// MySQL: the names of the tables that the condition reads, in lower case. Rows are deleted one
    /// by one there, so that a row of such a table which goes along with one of them may decide
    /// whether a later one matches.
    pub reads: Vec<String>,
    /// Whether the user asked for rows; if not, the rows of the change are ours alone.
    pub user_returning: bool,
}

/// The source of the before image of a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteImage {
    /// The DELETE itself returns the rows it removed: exact by construction.
    Returned(Query),
    /// A locking read, then the change.
    Read {
        /// The before image, locking its rows.
        before: Query,
        /// The change.
        change: Change,
    },
}

/// INSERT that changes no row that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The image columns: every column that can be written.
    pub columns: Vec<usize>,
    /// The statement to run.
    pub change: Query,
    /// The source of the after image.
    pub after: InsertAfter,
    /// Whether the user asked for rows; if not, the rows of the change are ours alone.
    pub user_returning: bool,
}

/// The source of the after image of an INSERT. As many rows as were affected, or the change must be
/// refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertAfter {
    /// The INSERT itself returns the rows it added.
    Returned,
    /// Read by the key values of the statement.
    ByValues {
        /// The read.
        query: Query,
        /// For a statement that bound NULL or 0 where the key is generated: if the read finds no
        /// row at all, these are the keys.
        generated: Option<GeneratedKeys>,
    },
    /// Read by the keys that the database generated.
    ByGenerated(GeneratedKeys),
}

/// INSERT that may change or remove rows that exist: `ON CONFLICT DO UPDATE`, `ON DUPLICATE KEY
/// UPDATE`, MySQL's `INSERT IGNORE`, `REPLACE`.
///
/// Keys found by a probe before the change are rows that existed: their undo is restore. Keys found
/// only afterwards are rows that were inserted: their undo is delete. Undo deletes the inserted
/// rows first, then restores the changed ones, then puts back the removed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upsert {
    /// The image columns: every column that can be written.
    pub columns: Vec<usize>,
    /// The effect on a row that exists.
    pub kind: UpsertKind,
    /// Reads of the rows that the statement could meet, locking them: one for each unique index
    /// that matters. One row may appear in several.
    pub probes: Vec<Query>,
    /// As of [`Update::judged`], of the probes.
    pub judged: bool,
    /// The statement to run.
    pub change: Query,
    /// The source of the after image.
    pub after: UpsertAfter,
    /// As of [`Delete::acts`], for the rows that a REPLACE removes.
    pub acts: bool,
    /// How many rows the statement offers, if its text shows it.
    pub rows: Option<usize>,
    /// Whether a condition of the statement decides if the row is offered at all. It was not if the
    /// statement has affected no row.
    pub conditional: bool,
    /// Whether the user asked for rows; if not, the rows of the change are ours alone.
    pub user_returning: bool,
    /// MySQL: the probes prove the absence of a row only while gaps stay locked, so that the local
    /// transaction must run at REPEATABLE READ or SERIALIZABLE.
    pub needs_gap_locks: bool,
    /// Why a row that got another spelling of its key could not be undone. One that has got it all
    /// the same must be refused.
    pub key_obstacle: Option<StatementRefusal>,
    /// Whether the update part assigns columns of the key. A row that has got another key must be
    /// refused.
    pub assigns_key: bool,
}

/// The effect of an upsert on a row that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsertKind {
    /// Leaves it alone.
    Ignore,
    /// Updates it.
    Update,
    /// Removes it, and inserts the row offered.
    Replace,
}

/// The source of the after image of an upsert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpsertAfter {
    /// The change returns every row it inserted or updated.
    Returned {
        /// The mark of the rows that were inserted. One with a key that no probe found and that was
        /// updated all the same was inserted by another transaction in between; the change must be
        /// refused.
        mark: InsertedMark,
        /// SQLite: a later row of the same REPLACE may have removed it again, so that the rows
        /// returned are read again by key.
        may_be_gone: bool,
    },
    /// Read again: the probed rows by key, and the probes once more for the inserted rows. With
    /// `Ignore`, as many new rows as were affected; else at least as many new and probed rows as
    /// `rows`, unless rows offered are equal to each other. Otherwise the change must be refused.
    Probed {
        /// Whether each row offered is there, in one column a row: one query for each probe. Rows
        /// fewer than offered are explained if some query finds each.
        found: Vec<Query>,
        /// Whether one of several rows may offer no value of any unique index, such as a bound
        /// NULL, so that no probe finds it although the counts agree: `found` must find each.
        may_hide: bool,
        /// Finds the row of a one-row statement that no probe finds (NULL in every unique key).
        generated: Option<GeneratedKeys>,
    },
}

/// The mark of the rows that an upsert has inserted, beside those that it has updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertedMark {
    /// That no probe has found them. No row comes in between.
    None,
    /// PostgreSQL: a last column more, true if the row was inserted.
    Returned,
    /// PostgreSQL: [`super::undo_sql::select_inserted`], after the change. A partitioned table
    /// returns no system columns.
    Read,
}

/// A read whose rows are locked globally until the global transaction ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingRead {
    /// The user's read with the key texts behind its own columns: run it instead of theirs.
    pub query: Query,
    /// How many columns at the end of a row are ours: one for each key part.
    pub key_columns: usize,
    /// How the rows are to be locked.
    pub mode: LockMode,
}

/// A read whose rows come from several tables, or stand for several rows each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedRead {
    /// Reads and locks the rows first: the key texts of each part stand at the front of its rows.
    /// `None`: they stand behind the columns of the read itself.
    pub keys: Option<Query>,
    /// The user's read.
    pub query: Query,
    /// The tables whose rows are locked.
    pub parts: Vec<ReadPart>,
    /// As of [`Upsert::needs_gap_locks`]: no further row may come between the two reads.
    pub needs_gap_locks: bool,
}

/// One table of a [`JoinedRead`]. Where the join has no row of it, its key texts are NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPart {
    /// The place of its table among the statement's.
    pub table: usize,
    /// How many key texts it has.
    pub key_columns: usize,
    /// How its rows are to be locked.
    pub mode: LockMode,
}

/// How a read locks its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// FOR UPDATE.
    Exclusive,
    /// FOR SHARE.
    Shared,
    /// A plain read of a transaction that asked for globally committed reads: no row may be held by
    /// another global, and none is locked beyond the local transaction.
    Committed,
}
