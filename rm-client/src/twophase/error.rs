//! The errors of two-phase commit beyond those that the database itself reports.
//!
//! As in AT mode these errors travel inside `sqlx::Error`; [`XaError::of`] finds them there.

use handfast_rm_core::two_phase::{EndedAgainstDecision, InvalidNode, NameTooLong};

use crate::at::AtError;
use crate::carried::{carried, carry, unload};
use crate::error::{Error, Rejection};
use crate::guard::KEPT;

/// A failure of two-phase commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XaError {
    /// The database has no two-phase commit.
    #[error(
        "{product} has no two-phase commit: use AT mode, `handfast.at(pool)`, for it ({})",
        self.code()
    )]
    Unsupported {
        /// The product.
        product: &'static str,
    },
    /// The server loses prepared transactions with their session.
    #[error(
        "server version {version} rolls prepared transactions back when their session ends: \
         two-phase commit needs MariaDB 10.5, MySQL 5.7.7, or later ({})",
        self.code()
    )]
    TooOld {
        /// The server's version text.
        version: String,
    },
    /// PostgreSQL keeps no prepared transactions unless it is configured to.
    #[error(
        "max_prepared_transactions is 0: set it to at least max_connections in postgresql.conf \
         and restart the server ({})",
        self.code()
    )]
    PreparedDisabled,
    /// The server does not show prepared transactions to this account, so none could be recovered.
    #[error("the server does not list prepared transactions: {reason} ({})", self.code())]
    RecoverDenied {
        /// The server's words.
        reason: String,
    },
    /// The text is not a node id.
    #[error("{}", InvalidNode { text: text.clone(), bytes_max: *bytes_max })]
    Node {
        /// The text.
        text: String,
        /// The limit.
        bytes_max: usize,
    },
    /// The name of a branch is longer than the database takes.
    #[error("{}", NameTooLong { name: name.clone(), bytes: *bytes, bytes_max: *bytes_max })]
    NameTooLong {
        /// The name.
        name: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A text would begin or end a transaction. It was not run.
    #[error(
        "{word} would end the local transaction past Handfast: use commit() or rollback() of the \
         local transaction ({})",
        self.code()
    )]
    TransactionControl {
        /// Its first word.
        word: String,
    },
    /// A text cannot be cut into statements, so that what it begins or ends cannot be seen. It was
    /// not run.
    #[error("the text cannot be cut into statements: {reason} ({})", self.code())]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// The coordinator could not be asked, or refuses. The local transaction is rolled back.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// PREPARE got no answer. The coordinator knows, so the global can only be rolled back, which
    /// rolls the branch back if it was prepared.
    #[error("whether the local transaction was prepared is unknown: {reason} ({})", self.code())]
    PrepareUnknown {
        /// The driver's message.
        reason: String,
    },
    /// Seen by operators: the global is committed, and this branch was rolled back by hand.
    #[error("{}", EndedAgainstDecision::RolledBack { branch: branch.clone() })]
    RolledBackAgainst {
        /// Its name in the database.
        branch: String,
    },
    /// Seen by operators: the global is rolled back, and this branch was committed by hand.
    #[error("{}", EndedAgainstDecision::Committed { branch: branch.clone() })]
    CommittedAgainst {
        /// Its name in the database.
        branch: String,
    },
    /// The closure of [`XaResource::transaction`](crate::XaResource::transaction) has ended, and
    /// its local transaction is still kept somewhere. It will be rolled back.
    #[error(
        "the closure moved its local transaction out, so it cannot be committed: leave it in the \
         closure, and await there what uses it ({})",
        self.code()
    )]
    Kept,
    /// The database failed while the resource was set up or swept.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl XaError {
    /// The failure of two-phase commit inside an sqlx error, if that is what it is.
    ///
    /// ```
    /// use handfast::XaError;
    ///
    /// fn code(error: &sqlx::Error) -> Option<&str> {
    ///     XaError::of(error).map(XaError::code)
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
            Self::Unsupported { .. } => "HF-XA-UNSUPPORTED",
            Self::TooOld { .. } => "HF-XA-TOO-OLD",
            Self::PreparedDisabled => "HF-XA-PREPARED-DISABLED",
            Self::RecoverDenied { .. } => "HF-XA-RECOVER-DENIED",
            Self::Node { .. } => InvalidNode::CODE,
            Self::NameTooLong { .. } => NameTooLong::CODE,
            Self::TransactionControl { .. } => "HF-XA-TRANSACTION-CONTROL",
            Self::Unreadable { .. } => "HF-XA-UNREADABLE",
            Self::Coordinator(error) => error.code(),
            Self::PrepareUnknown { .. } => "HF-XA-PREPARE-UNKNOWN",
            Self::RolledBackAgainst { .. } => "HF-XA-ROLLED-BACK-AGAINST",
            Self::CommittedAgainst { .. } => "HF-XA-COMMITTED-AGAINST",
            Self::Kept => KEPT,
            // A missing client table has the code of AT mode.
            Self::Database(error) => AtError::of(error).map_or("HF-XA-DATABASE", AtError::code),
        }
    }

    /// The coordinator's refusal, if that is what it is.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        if let Self::Coordinator(error) = self { error.rejection() } else { None }
    }
}

impl From<sqlx::Error> for XaError {
    /// Unwraps a failure of two-phase commit that travelled inside an sqlx error.
    fn from(error: sqlx::Error) -> Self {
        unload(error).unwrap_or_else(Self::Database)
    }
}

/// Lets sqlx's own methods return a failure of two-phase commit.
impl From<XaError> for sqlx::Error {
    fn from(error: XaError) -> Self {
        let XaError::Database(error) = error else { return carry(error) };
        error
    }
}

impl From<InvalidNode> for XaError {
    fn from(invalid: InvalidNode) -> Self {
        Self::Node { text: invalid.text, bytes_max: invalid.bytes_max }
    }
}

impl From<NameTooLong> for XaError {
    fn from(name: NameTooLong) -> Self {
        let NameTooLong { name, bytes, bytes_max } = name;
        Self::NameTooLong { name, bytes, bytes_max }
    }
}
