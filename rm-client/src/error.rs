//! Errors between an application and the coordinator.
//!
//! The variants differ in what the caller can do. Each has a stable code, listed in
//! `docs/errors.md`, which ends its text. The result of a transaction as a whole is a
//! [`TransactionError`](crate::TransactionError).

use std::sync::Arc;

pub use handfast_rm_core::{Rejection, RejectionDetail};

use handfast_rm_core::link::RequestError;
use handfast_rm_core::{GlobalStatus, MalformedXid};

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
    /// Another process began this transaction. Only an error returned to that process can make
    /// it roll back.
    #[error(
        "xid {xid} was begun by another process: return an error to that process instead ({})",
        self.code()
    )]
    BegunElsewhere {
        /// The ambient global.
        xid: Xid,
    },
    /// The key of the transaction has begun a global before, and that global is not rolled back.
    /// If it is committed, the work is done. Otherwise another attempt is under way, or has
    /// left a global that ends at its timeout: ask again later.
    #[error("key {key:?} has begun {} before, which is {status} ({})", earlier(.xid), self.code())]
    BegunBefore {
        /// The key.
        key: String,
        /// The earlier global. `None`: it is being begun by this process.
        xid: Option<Xid>,
        /// How it stands.
        status: GlobalStatus,
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
        /// The mistake in it.
        reason: String,
    },
    /// A variable of the environment has a value that cannot be used. Correct it.
    #[error("{variable}: {reason} ({})", self.code())]
    Environment {
        /// The variable.
        variable: &'static str,
        /// The mistake in its value.
        reason: String,
    },
    /// The text does not describe a saga. Correct it: `docs/saga.md` describes the form.
    #[error("no saga: {reason} ({})", self.code())]
    SagaJson {
        /// The mistake in it, and its place.
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
            Self::BegunElsewhere { .. } => "HF-TM-LAUNCHER-ELSEWHERE",
            Self::BegunBefore { .. } => "HF-TM-BEGUN-BEFORE",
            Self::NotExplicit { .. } => "HF-TM-NOT-EXPLICIT",
            Self::MalformedXid { .. } => MalformedXid::CODE,
            Self::Configuration { .. } => "HF-CFG-CLIENT",
            Self::Environment { .. } => "HF-CFG-ENVIRONMENT",
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
            | Self::BegunElsewhere { .. }
            | Self::BegunBefore { .. }
            | Self::NotExplicit { .. }
            | Self::MalformedXid { .. }
            | Self::SagaJson { .. }
            | Self::Environment { .. }
            | Self::Configuration { .. } => None,
        }
    }
}

fn earlier(xid: &Option<Xid>) -> String {
    xid.as_ref().map_or_else(|| "a global".to_owned(), |xid| format!("xid {xid}"))
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Unreachable { reason } => Self::Unreachable { reason },
            RequestError::Unanswered { request } => Self::Unanswered { request },
            RequestError::QueueFull { max } => Self::QueueFull { max },
            RequestError::TooLarge { bytes, max } => Self::TooLarge { bytes, max },
            RequestError::Closed => Self::Closed,
        }
    }
}

impl From<MalformedXid> for Error {
    fn from(malformed: MalformedXid) -> Self {
        Self::MalformedXid { text: malformed.text }
    }
}
