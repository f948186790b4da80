//! The errors of AT mode beyond those that the database itself reports.
//!
//! These errors travel inside `sqlx::Error`, because they come out of sqlx's own methods (see
//! `carried`); [`AtError::of`] finds them there. Each has a stable code, listed in
//! `docs/errors.md`, which ends its text.

use std::error::Error as StdError;
use std::fmt;

use handfast_rm_core::plan::StatementRefusal;

use super::database::value::Misfit;
use crate::carried::{carried, carry, unload};
use crate::error::{Error, Rejection, RejectionDetail};
use crate::guard::KEPT;

/// A failure of AT mode.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AtError {
    /// The statement cannot be undone exactly and was not run.
    #[error(transparent)]
    Refused(#[from] StatementRefusal),
    /// The coordinator could not be asked, or refuses. After a refusal because of a locked row the
    /// local transaction is rolled back and can be repeated.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// A table of Handfast's own is missing in the database.
    #[error(
        "table {table} is missing in {resource}: apply the client migrations, with \
         `handfast.migrate(&pool).await` or from migrations/{folder} ({})",
        self.code()
    )]
    ClientTableMissing {
        /// The missing table.
        table: String,
        /// Where it is missing.
        resource: String,
        /// The folder of migrations that makes it.
        folder: &'static str,
    },
    /// A statement names a table that the catalogue does not have.
    #[error(
        "table {table} is not in the catalogue: create it first; temporary tables are not seen ({})",
        self.code()
    )]
    UnknownTable {
        /// As the statement names it.
        table: String,
    },
    /// A statement writes to a table of another database than the resource's.
    #[error(
        "table {table} belongs to another database than {resource}, where its locks would protect \
         nothing: write to it through an AT resource of its own ({})",
        self.code()
    )]
    OtherDatabase {
        /// The table.
        table: String,
        /// The resource.
        resource: String,
    },
    /// Between the before image and the change another transaction made further rows match. Nothing
    /// is lost: the local transaction is rolled back and can be repeated.
    #[error(
        "{statement} of {table} changed {changed} rows where {imaged} were imaged: another \
         transaction changed which rows match; repeat the local transaction ({})",
        self.code()
    )]
    RowsDiffer {
        /// The kind of statement.
        statement: &'static str,
        /// The table.
        table: String,
        /// How many rows the before image has.
        imaged: u64,
        /// How many rows were changed.
        changed: u64,
    },
    /// An UPDATE that assigns the result of a query changes so many rows that they would have to be
    /// named in several statements, of which the later ones would see what the first have changed.
    /// Nothing was changed.
    #[error(
        "the statement would write {rows} rows, and can name {rows_max} at most: read what its \
         query says first, or write fewer rows at a time ({})",
        self.code()
    )]
    TooManyRows {
        /// How many rows.
        rows: usize,
        /// The limit.
        rows_max: usize,
    },
    /// An earlier statement was cut off between its change and its undo item, by a dropped future
    /// or an error. The local transaction can only be rolled back.
    #[error(
        "a statement was cut off before its undo was recorded: roll the local transaction back \
         and repeat it ({})",
        self.code()
    )]
    HalfRecorded,
    /// The database ended the local transaction by itself (deadlock, full disk, lost connection).
    /// It can only be rolled back.
    #[error(
        "the database has ended the local transaction: roll it back and repeat it ({})",
        self.code()
    )]
    Ended,
    /// The undo log of one branch would be larger than the database takes.
    #[error(
        "the undo log of this branch takes {bytes} bytes, more than {bytes_max}: change fewer rows \
         in one local transaction{hint} ({})",
        self.code()
    )]
    UndoTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
        /// Another remedy.
        hint: &'static str,
    },
    /// The global was rolled back while phase one still ran. The local transaction is rolled back.
    #[error(
        "xid {xid} is already rolled back: the local transaction came too late; give the global a \
         longer timeout if its work takes longer ({})",
        self.code()
    )]
    GlobalFinished {
        /// The global.
        xid: String,
    },
    /// COMMIT of the local transaction got no answer. The coordinator knows, so the global can only
    /// be rolled back, which undoes the local transaction if it was committed.
    #[error(
        "whether the local transaction was committed is unknown; ask how the global has ended before \
         repeating it: {reason} ({})",
        self.code()
    )]
    CommitUnknown {
        /// The driver's message.
        reason: String,
    },
    /// A value cannot be kept exactly.
    #[error(
        "column {column} holds a value that cannot be kept exactly: {reason} ({})",
        self.code()
    )]
    Value {
        /// The column.
        column: String,
        /// Why.
        reason: String,
    },
    /// A row has NULL in its key.
    #[error(
        "a row of {table} has NULL in its primary key and so no identity: give it a value ({})",
        self.code()
    )]
    KeyNull {
        /// The table.
        table: String,
    },
    /// The table is not what it was when an undo log was written, so that its values cannot go
    /// back. Seen by operators, as the reason why a branch is not rolled back.
    #[error("table {table} has changed since its undo log was written: {reason} ({})", self.code())]
    SchemaChanged {
        /// The table.
        table: String,
        /// The difference.
        reason: String,
    },
    /// The upsert is exact only under gap locks.
    #[error(
        "this upsert is exact only while gaps stay locked: use isolation level REPEATABLE READ or \
         SERIALIZABLE instead of {level} ({})",
        self.code()
    )]
    GapLocks {
        /// The level in force.
        level: String,
    },
    /// A declared column cannot be a counter.
    #[error("{table}.{column} cannot be a counter: {reason} ({})", self.code())]
    CounterUnfit {
        /// The table.
        table: String,
        /// The column, as it is declared.
        column: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A statement has taken a counter beyond its bound. The local transaction can only be rolled
    /// back.
    #[error(
        "the statement would leave {value} in {table}.{column}, beyond the counter's bound: guard \
         it by a condition, such as `AND {column} >= ?`, or declare another bound ({})",
        self.code()
    )]
    CounterBound {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The value that it would have.
        value: i128,
    },
    /// No savepoint of that name is set.
    #[error(
        "savepoint {name:?} is not set: set it before rolling back to it or releasing it ({})",
        self.code()
    )]
    UnknownSavepoint {
        /// The name.
        name: String,
    },
    /// A local transaction with global-lock checks was to begin inside a global.
    #[error(
        "global-lock checks are for work outside of a global, but xid {xid} is active ({})",
        self.code()
    )]
    CheckedInsideGlobal {
        /// The ambient global.
        xid: String,
    },
    /// The resource takes no work outside of a global, and no global is active.
    #[error(
        "{resource} takes no work outside of a global transaction: call this within one, or let \
         the request carry its XID ({})",
        self.code()
    )]
    OutsideGlobal {
        /// The resource.
        resource: String,
    },
    /// The closure of [`AtResource::transaction`](crate::AtResource::transaction) has ended, and
    /// its local transaction is still kept somewhere. It will be rolled back.
    #[error(
        "the closure moved its local transaction out, so it cannot be committed: leave it in the \
         closure, and await there what uses it ({})",
        self.code()
    )]
    Kept,
    /// Another process is migrating the database and does not finish.
    #[error(
        "another process is migrating this database and has not finished within a minute ({})",
        self.code()
    )]
    MigrationBusy,
    /// A migration was applied with another text than this version has for it.
    #[error(
        "migration {number} ({name}) was applied with another text: this database belongs to \
         another version of Handfast ({})",
        self.code()
    )]
    MigrationChanged {
        /// Its number.
        number: i64,
        /// Its name.
        name: String,
    },
    /// The pool's sessions read SQL in another way than the planner.
    #[error(
        "the sessions of this pool have {setting}, under which a text in SQL ends elsewhere: unset \
         it for the pool's connections ({})",
        self.code()
    )]
    SessionSetting {
        /// The setting.
        setting: &'static str,
    },
    /// The database failed while the resource was set up.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl AtError {
    /// The AT failure inside an sqlx error, if that is what it is.
    ///
    /// ```
    /// use handfast::AtError;
    ///
    /// fn code(error: &sqlx::Error) -> Option<&str> {
    ///     AtError::of(error).map(AtError::code)
    /// }
    /// assert_eq!(code(&sqlx::Error::RowNotFound), None);
    /// ```
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Option<&Self> {
        carried(error)
    }

    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Coordinator(error) => error.code(),
            Self::ClientTableMissing { .. } => "HF-AT-CLIENT-TABLE-MISSING",
            Self::UnknownTable { .. } => "HF-AT-UNKNOWN-TABLE",
            Self::OtherDatabase { .. } => "HF-AT-OTHER-DATABASE",
            Self::RowsDiffer { .. } => "HF-AT-ROWS-DIFFER",
            Self::HalfRecorded => "HF-AT-HALF-RECORDED",
            Self::Ended => "HF-AT-ENDED",
            Self::TooManyRows { .. } => "HF-AT-TOO-MANY-ROWS",
            Self::UndoTooLarge { .. } => "HF-AT-UNDO-TOO-LARGE",
            Self::GlobalFinished { .. } => "HF-AT-GLOBAL-FINISHED",
            Self::CommitUnknown { .. } => "HF-AT-COMMIT-UNKNOWN",
            Self::Value { .. } => "HF-AT-VALUE",
            Self::KeyNull { .. } => "HF-AT-KEY-NULL",
            Self::SchemaChanged { .. } => "HF-AT-SCHEMA-CHANGED",
            Self::GapLocks { .. } => "HF-AT-GAP-LOCKS",
            Self::CounterUnfit { .. } => "HF-AT-COUNTER-UNFIT",
            Self::CounterBound { .. } => "HF-AT-COUNTER-BOUND",
            Self::UnknownSavepoint { .. } => "HF-AT-SAVEPOINT",
            Self::CheckedInsideGlobal { .. } => "HF-AT-CHECKED-INSIDE-GLOBAL",
            Self::OutsideGlobal { .. } => "HF-AT-OUTSIDE-GLOBAL",
            Self::Kept => KEPT,
            Self::MigrationBusy => "HF-AT-MIGRATION-BUSY",
            Self::MigrationChanged { .. } => "HF-AT-MIGRATION-CHANGED",
            Self::SessionSetting { .. } => "HF-AT-SESSION-SETTING",
            Self::Database(_) => "HF-AT-DATABASE",
        }
    }

    /// The coordinator's refusal, if that is what it is.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        if let Self::Coordinator(error) = self { error.rejection() } else { None }
    }

    /// Whether the reason is a global lock, which its holder releases sooner or later.
    pub(crate) fn is_row_locked(&self) -> bool {
        self.rejection()
            .is_some_and(|refusal| matches!(refusal.detail(), RejectionDetail::RowLocked { .. }))
    }

    /// Whether the same local transaction, repeated from its start, may well succeed.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.is_row_locked() || matches!(self, Self::RowsDiffer { .. })
    }

    pub(crate) fn misfit(column: &str, misfit: &Misfit) -> Self {
        Self::Value { column: column.to_owned(), reason: misfit.to_string() }
    }
}

impl From<sqlx::Error> for AtError {
    /// Unwraps an AT failure that travelled inside an sqlx error.
    fn from(error: sqlx::Error) -> Self {
        unload(error).unwrap_or_else(Self::Database)
    }
}

/// Lets sqlx's own methods return an AT failure.
impl From<AtError> for sqlx::Error {
    fn from(error: AtError) -> Self {
        let AtError::Database(error) = error else { return carry(error) };
        error
    }
}

/// The text of an error and of everything that caused it, for reports to the coordinator.
pub(crate) fn with_causes(error: &(dyn StdError + 'static)) -> String {
    struct Causes<'e>(&'e (dyn StdError + 'static));
    impl fmt::Display for Causes<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)?;
            let mut next = self.0.source();
            while let Some(cause) = next {
                write!(f, ": {cause}")?;
                next = cause.source();
            }
            Ok(())
        }
    }
    Causes(error).to_string()
}
