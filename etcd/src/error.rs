//! Errors of etcd, by the remedy that a caller has.

use std::time::Duration;

use tonic::metadata::errors::InvalidMetadataValue;
use tonic::{Code, Status};

use super::auth;

/// The text by which etcd refuses writes once its database has reached its quota. Its code is that
/// of a member that is busy, too.
const FULL: &str = "database space exceeded";

/// Why a request to etcd has no answer.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The request failed, and a repetition may help. Whether it was carried out is unknown.
    #[error("etcd failed")]
    Failed {
        /// The failure.
        source: Status,
    },
    /// The request was not answered in time. Whether it was carried out is unknown.
    #[error("no answer in time")]
    Unanswered,
    /// A stream ended before its answer. Whether the request was carried out is unknown.
    #[error("the stream of {what} has ended")]
    Ended {
        /// The stream's content.
        what: &'static str,
    },
    /// A token for a password cannot be sent.
    #[error("etcd gave a token that no header can carry")]
    Token {
        /// The problem.
        source: InvalidMetadataValue,
    },
    /// etcd denies access: a wrong user, password or certificate, or a missing right.
    #[error("etcd: {reason}")]
    Denied {
        /// The cluster's message.
        reason: String,
    },
    /// The options cannot be used.
    #[error("{reason}")]
    Options {
        /// The rule that they break.
        reason: String,
    },
    /// The database has reached its quota: nothing can be written until an operator makes room.
    #[error("the database of etcd is full")]
    Full {
        /// The cluster's message.
        source: Status,
    },
    /// The revision that was asked for has been compacted.
    #[error("the revision has been compacted")]
    Compacted {
        /// The cluster's message.
        source: Status,
    },
    /// The request as such is refused, for example because it is too large. It was not carried out.
    #[error("etcd refuses the request: {}", .source.message())]
    Refused {
        /// The cluster's message.
        source: Status,
    },
}

impl EtcdError {
    /// Returns whether a repetition may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::Unanswered | Self::Ended { .. } | Self::Token { .. } => {
                true
            }
            Self::Denied { .. }
            | Self::Options { .. }
            | Self::Full { .. }
            | Self::Compacted { .. }
            | Self::Refused { .. } => false,
        }
    }
}

/// Waits for an answer, but no longer than the limit.
///
/// # Errors
/// Returns the call's error, or [`EtcdError::Unanswered`].
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or(Err(EtcdError::Unanswered))
}

/// Converts a failure, by its code and text, into the error for what a caller can do about it.
pub(crate) fn failed(source: Status) -> EtcdError {
    let text = with_sources(&source);
    let code = source.code();
    if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
        return EtcdError::Denied { reason: text };
    }
    // This comes before the other codes: for a wrong password etcd answers with an invalid
    // argument.
    if let Some(denied) = auth::denied(&text) {
        return denied;
    }
    if code == Code::ResourceExhausted && text.contains(FULL) {
        EtcdError::Full { source }
    } else if code == Code::OutOfRange {
        EtcdError::Compacted { source }
    } else if code == Code::InvalidArgument {
        EtcdError::Refused { source }
    } else {
        EtcdError::Failed { source }
    }
}

/// Formats an error and its causes in one line: tonic's own text stops at `transport error`.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |source| source.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let kind = |code, text: &str| format!("{:?}", failed(Status::new(code, text)));
        for (code, text, expected) in [
            (Code::Unavailable, "etcdserver: leader changed", "Failed"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "Failed"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "Full"),
            (Code::OutOfRange, "mvcc: required revision has been compacted", "Compacted"),
            (Code::InvalidArgument, "etcdserver: request is too large", "Refused"),
            (Code::InvalidArgument, "authentication failed, invalid user", "Denied"),
            (Code::PermissionDenied, "etcdserver: permission denied", "Denied"),
        ] {
            assert!(kind(code, text).starts_with(expected), "{text}: {}", kind(code, text));
        }
    }
}
