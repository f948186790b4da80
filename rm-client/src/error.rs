//! Errors between an application and the coordinator.
//!
//! The variants differ in what the caller can do. Each has a stable code, listed in
//! `docs/errors.md`, which ends its text. The result of a transaction as a whole is a
//! [`TransactionError`](crate::TransactionError).

use std::fmt;
use std::sync::Arc;

use handfast_proto::v1;

use crate::status::GlobalStatus;
use crate::xid::Xid;

/// A failure of a call to the coordinator, or of its preparation. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There was no connection, and the request was never sent. It has certainly not been carried
    /// out.
    #[error("coordinator unreachable, nothing was sent: {reason} ({})", self.code())]
    Unreachable {
        /// The last failure to connect.
        reason: Arc<str>,
    },
    /// The request was sent, and no answer came in time. It may have been carried out or not.
    #[error(
        "coordinator did not answer {request}: whether it was carried out is unknown ({})",
        self.code()
    )]
    Unanswered {
        /// The request, such as `end`.
        request: &'static str,
    },
    /// The coordinator understood the request and refuses it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The coordinator does not accept the token, or it lacks the role. Fix the configuration.
    #[error("coordinator does not accept this client: {reason} ({})", self.code())]
    Unauthenticated {
        /// The coordinator's message.
        reason: Arc<str>,
    },
    /// Too many requests of this process wait for an answer. Send fewer at a time, or try again
    /// later.
    #[error("too many unanswered requests: at most {max} ({})", self.code())]
    QueueFull {
        /// The limit.
        max: usize,
    },
    /// The request is larger than the coordinator accepts. Make the transaction touch fewer rows.
    #[error("request of {bytes} bytes is too large: at most {max} ({})", self.code())]
    TooLarge {
        /// The size of the request.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The connection is closed for good: [`Handfast::close`](crate::Handfast::close) was called,
    /// or the runtime that carried it is gone.
    #[error("the connection to the coordinator is closed ({})", self.code())]
    Closed,
    /// The coordinator answered with something that does not fit the request.
    #[error("unexpected answer to {request}: {got} ({})", self.code())]
    UnexpectedAnswer {
        /// The request.
        request: &'static str,
        /// The answer.
        got: String,
    },
    /// This call requires a transaction around it, and there is none.
    #[error("a global transaction is required here (mandatory) ({})", self.code())]
    TransactionRequired,
    /// This call must not have a transaction around it, and there is one.
    #[error(
        "no global transaction is allowed here ({why}), but xid {xid} is active ({})",
        self.code()
    )]
    TransactionForbidden {
        /// The ambient global.
        xid: Xid,
        /// The rule that forbids it.
        why: &'static str,
    },
    /// Another process launched this transaction. Only an error returned to that process can make
    /// it roll back.
    #[error(
        "xid {xid} was begun by another process: return an error to its launcher instead ({})",
        self.code()
    )]
    LauncherElsewhere {
        /// The ambient global.
        xid: Xid,
    },
    /// A transaction of this propagation kind cannot be begun explicitly.
    #[error("propagation {propagation} cannot be begun explicitly: use run ({})", self.code())]
    NotExplicit {
        /// The propagation kind.
        propagation: &'static str,
    },
    /// The text is not an XID.
    #[error("malformed xid: {text:?} ({})", self.code())]
    MalformedXid {
        /// The text, cut at 256 characters.
        text: String,
    },
    /// A setting is wrong. Fix the configuration.
    #[error("{setting}: {reason} ({})", self.code())]
    Configuration {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The text does not describe a saga. Correct it: `docs/saga.md` describes the form.
    #[error("no saga: {reason} ({})", self.code())]
    SagaJson {
        /// What is wrong with it, and where.
        reason: String,
    },
}

impl Error {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "HF-TM-UNREACHABLE",
            Self::Unanswered { .. } => "HF-TM-UNANSWERED",
            Self::Rejected(rejection) => rejection.code(),
            Self::Unauthenticated { .. } => "HF-TM-UNAUTHENTICATED",
            Self::QueueFull { .. } => "HF-TM-QUEUE-FULL",
            Self::TooLarge { .. } => "HF-TM-TOO-LARGE",
            Self::Closed => "HF-TM-CLOSED",
            Self::UnexpectedAnswer { .. } => "HF-TM-UNEXPECTED-ANSWER",
            Self::TransactionRequired => "HF-TM-TRANSACTION-REQUIRED",
            Self::TransactionForbidden { .. } => "HF-TM-TRANSACTION-FORBIDDEN",
            Self::LauncherElsewhere { .. } => "HF-TM-LAUNCHER-ELSEWHERE",
            Self::NotExplicit { .. } => "HF-TM-NOT-EXPLICIT",
            Self::MalformedXid { .. } => "HF-TM-XID",
            Self::Configuration { .. } => "HF-CFG-CLIENT",
            Self::SagaJson { .. } => handfast_proto::saga_json::CODE,
        }
    }

    /// Returns the coordinator's refusal, if this error is one.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            Self::Rejected(rejection) => Some(rejection),
            Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Unauthenticated { .. }
            | Self::QueueFull { .. }
            | Self::TooLarge { .. }
            | Self::Closed
            | Self::UnexpectedAnswer { .. }
            | Self::TransactionRequired
            | Self::TransactionForbidden { .. }
            | Self::LauncherElsewhere { .. }
            | Self::NotExplicit { .. }
            | Self::MalformedXid { .. }
            | Self::SagaJson { .. }
            | Self::Configuration { .. } => None,
        }
    }
}

/// A request that the coordinator understood and refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    code: Arc<str>,
    message: Arc<str>,
    detail: RejectionDetail,
}

/// The details of a refusal, beyond its code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectionDetail {
    /// There are no details.
    Plain,
    /// Another global has locked a row, and the request may not wait, or not any longer.
    RowLocked {
        /// The table.
        table: Arc<str>,
        /// The canonical key of the row.
        key: Arc<[u8]>,
        /// The XID of the holder.
        holder: Arc<str>,
        /// Whether the holder is rolling back. A transaction that holds database locks must release
        /// them first, since the rollback may need them.
        holder_rolling_back: bool,
    },
    /// A global whose rollback needs an operator holds a row. Waiting or trying again helps only
    /// after an operator has resolved it.
    RowNeedsOperator {
        /// The table.
        table: Arc<str>,
        /// The canonical key of the row.
        key: Arc<[u8]>,
        /// The XID of the holder.
        holder: Arc<str>,
    },
    /// Waiting would close a cycle: each XID waits for the next, the last for the first.
    Deadlock {
        /// The cycle.
        cycle: Arc<[String]>,
    },
    /// The global is decided.
    AlreadyDecided {
        /// The status of the global.
        status: GlobalStatus,
    },
}

impl Rejection {
    /// Returns the coordinator's stable code, such as `HF-TC-ROW-LOCKED`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns a text for people: the cause, and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details that a caller can act on.
    #[must_use]
    pub fn detail(&self) -> &RejectionDetail {
        &self.detail
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Rejection {}

impl From<v1::Rejection> for Rejection {
    fn from(wire: v1::Rejection) -> Self {
        use v1::rejection::Detail;
        let detail = match wire.detail {
            None => RejectionDetail::Plain,
            Some(Detail::RowLocked(locked)) => RejectionDetail::RowLocked {
                table: locked.table.into(),
                key: locked.key.into(),
                holder: locked.xid.into(),
                holder_rolling_back: locked.holder_rolling_back,
            },
            Some(Detail::RowNeedsOperator(stuck)) => RejectionDetail::RowNeedsOperator {
                table: stuck.table.into(),
                key: stuck.key.into(),
                holder: stuck.xid.into(),
            },
            Some(Detail::Deadlock(deadlock)) => {
                RejectionDetail::Deadlock { cycle: deadlock.xids.into() }
            }
            Some(Detail::AlreadyDecided(decided)) => RejectionDetail::AlreadyDecided {
                status: GlobalStatus::from_wire(decided.status(), decided.rollback_reason()),
            },
        };
        Self { code: wire.code.into(), message: wire.message.into(), detail }
    }
}
