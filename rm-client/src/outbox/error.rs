//! Errors of events. The variants differ in what the caller can do.

use super::event::EventId;
use crate::carried::{carried, carry, unload};

/// A failure of the outbox, its relay or the inbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The event cannot be stored or published in this form. Correct it.
    #[error("malformed event: {reason} ({})", self.code())]
    Malformed {
        /// The mistake in it.
        reason: String,
    },
    /// The event is larger than brokers accept. Store its content elsewhere, and send a reference.
    #[error(
        "event of {payload} bytes with {headers} bytes of headers: at most 1000000 and 16384 ({})",
        self.code()
    )]
    TooLarge {
        /// The size of the payload.
        payload: usize,
        /// The size of the headers.
        headers: usize,
    },
    /// A table of events is missing in the database, or is not one of Handfast.
    #[error(
        "a table of events is missing or has other columns: apply the client migrations, with \
         `handfast.migrate(&pool).await` or from migrations/ ({})",
        self.code()
    )]
    TableMissing {
        /// The error of the database.
        source: sqlx::Error,
    },
    /// There is no such event, or it is not in a state that allows the operation.
    #[error("event {id} is not {expected} ({})", self.code())]
    WrongState {
        /// The id of the event.
        id: EventId,
        /// The state that the operation requires.
        expected: &'static str,
    },
    /// The database aborted the local transaction in favour of another one. Nothing is lost: repeat
    /// the local transaction.
    #[error(
        "the local transaction was ended in favour of another one: repeat it ({})",
        self.code()
    )]
    Conflict {
        /// The error of the database.
        source: sqlx::Error,
    },
    /// MySQL: the local transaction of an effect had ended before its COMMIT, and the inbox may not
    /// know the event. A statement failed in a way that rolls all of it back, such as a deadlock,
    /// and the effect went on; or a statement committed it, such as CREATE TABLE. Statements after
    /// that may have taken effect by themselves: look at what they write before the event is
    /// received again, and let the effect return the first error of the database.
    #[error(
        "the local transaction ended before its COMMIT, by an error that the effect ignored or by \
         a statement that commits: statements after that may have taken effect by themselves ({})",
        self.code()
    )]
    EndedEarly {
        /// The error of the database, which misses the local transaction.
        source: sqlx::Error,
    },
    /// The broker cannot be reached, or cannot serve at the moment. The relay tries again by
    /// itself.
    #[error("broker unavailable: {reason} ({})", self.code())]
    BrokerUnavailable {
        /// The error of the broker.
        reason: String,
    },
    /// The database failed.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl OutboxError {
    /// Returns the error of an event inside an sqlx error, if it holds one. Errors of the database
    /// itself are not wrapped.
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Option<&Self> {
        carried(error)
    }

    /// Returns the stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "HF-OUTBOX-MALFORMED",
            Self::TooLarge { .. } => "HF-OUTBOX-TOO-LARGE",
            Self::TableMissing { .. } => "HF-OUTBOX-TABLE-MISSING",
            Self::WrongState { .. } => "HF-OUTBOX-WRONG-STATE",
            Self::Conflict { .. } => "HF-OUTBOX-CONFLICT",
            Self::EndedEarly { .. } => "HF-OUTBOX-ENDED-EARLY",
            Self::BrokerUnavailable { .. } => "HF-OUTBOX-BROKER",
            Self::Database(_) => "HF-OUTBOX-DATABASE",
        }
    }
}

impl From<sqlx::Error> for OutboxError {
    fn from(source: sqlx::Error) -> Self {
        let source = match unload(source) {
            Ok(ours) => return ours,
            Err(source) => source,
        };
        if crate::fence::is_conflict(&source) {
            Self::Conflict { source }
        } else {
            Self::Database(source)
        }
    }
}

/// Allows `emit(..).await?` in functions that return sqlx's errors.
impl From<OutboxError> for sqlx::Error {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Conflict { source } | OutboxError::Database(source) => source,
            OutboxError::Malformed { .. }
            | OutboxError::TooLarge { .. }
            | OutboxError::TableMissing { .. }
            | OutboxError::WrongState { .. }
            | OutboxError::EndedEarly { .. }
            | OutboxError::BrokerUnavailable { .. } => carry(error),
        }
    }
}
