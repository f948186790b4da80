//! The errors of guarding tables.

use super::super::error::AtError;

/// Why a table cannot be guarded, or its guard not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The database has no guards.
    #[error(
        "tables of a {database} database cannot be guarded: guards are for PostgreSQL, MariaDB \
         and MySQL ({})",
        self.code()
    )]
    Database {
        /// The product.
        database: &'static str,
    },
    /// The sessions of the server work at an isolation level whose gap locks would let branches
    /// wait for every writer from outside.
    #[error(
        "the server's isolation level is {level}, at which a writer from outside would lock the \
         gaps between guarded rows, and branches would wait for it: set transaction-isolation = \
         READ-COMMITTED in the server's configuration, and SET GLOBAL TRANSACTION ISOLATION LEVEL \
         READ COMMITTED for sessions to come; nothing was changed ({})",
        self.code()
    )]
    Isolation {
        /// The level.
        level: String,
    },
    /// The table is of a kind that cannot be guarded.
    #[error("table {table} cannot be guarded: {reason} ({})", self.code())]
    Table {
        /// The table.
        table: String,
        /// Why.
        reason: String,
    },
    /// A trigger is made or removed only while nothing writes the table.
    #[error(
        "table {table} has been in use for {seconds} seconds on end, and a guard is put on or \
         taken away between two transactions: end the long transaction, or try again at a quiet \
         time; nothing was changed ({})",
        self.code()
    )]
    Busy {
        /// The table.
        table: String,
        /// How long was waited.
        seconds: u32,
    },
    /// The table has no guard.
    #[error("table {table} is not guarded: `handfast guard ls` lists those that are ({})", self.code())]
    NotGuarded {
        /// The table.
        table: String,
    },
    /// A table that cannot be used in AT mode cannot be guarded; or the database failed.
    #[error(transparent)]
    At(#[from] AtError),
}

impl GuardError {
    /// The refusal of a database product that has no guards.
    #[must_use]
    pub fn no_guards(database: &'static str) -> Self {
        Self::Database { database }
    }

    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Database { .. } => "HF-GUARD-DATABASE",
            Self::Isolation { .. } => "HF-GUARD-ISOLATION",
            Self::Table { .. } => "HF-GUARD-TABLE",
            Self::Busy { .. } => "HF-GUARD-BUSY",
            Self::NotGuarded { .. } => "HF-GUARD-NOT-GUARDED",
            Self::At(error) => error.code(),
        }
    }
}

impl From<sqlx::Error> for GuardError {
    fn from(error: sqlx::Error) -> Self {
        Self::At(error.into())
    }
}
