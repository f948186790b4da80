//! Errors: those of this crate, and the way back from SeaORM's error to the failure behind it.
//!
//! All of them travel inside `sqlx::Error`, which `DbErr` keeps whole.

use handfast::outbox::OutboxError;
use handfast::{AtError, XaError};
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr};

/// A misuse of a transaction or a value, found before anything is sent to the database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrmError {
    /// A transaction is used while another one is nested in it. Rolled back, the nested one would
    /// take with it what the outer one has done meanwhile.
    #[error(
        "a transaction is nested in this one: commit or roll back the inner one first, and run \
         statements through it meanwhile ({})",
        self.code()
    )]
    NestedOpen,
    /// The transaction has ended, or the one around it has.
    #[error(
        "the transaction has ended, or the one that it is nested in: begin another one ({})",
        self.code()
    )]
    Ended,
    /// A transaction is used while one of its streams is open, which has its connection.
    #[error(
        "a stream of this transaction is open and has its connection: read it to its end or drop \
         it first, or read all rows at once ({})",
        self.code()
    )]
    StreamOpen,
    /// The future of a statement was dropped before its end, by a timeout for instance. Where the
    /// driver stands is unknown, so that nothing more is done in the local transaction.
    #[error(
        "a statement of this transaction was cut off: roll the whole transaction back, and begin \
         another one ({})",
        self.code()
    )]
    CutOff,
    /// A transaction cannot be begun with these options.
    #[error("the transaction cannot have {option} here: {advice} ({})", self.code())]
    Options {
        /// The option.
        option: String,
        /// A remedy.
        advice: &'static str,
    },
    /// The database cannot be sent a value.
    #[error("argument {position} is {what}, which {product} does not take ({})", self.code())]
    Value {
        /// Its place among the arguments, from 1.
        position: usize,
        /// A description of it.
        what: &'static str,
        /// The database.
        product: &'static str,
    },
}

impl OrmError {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NestedOpen => "HF-ORM-NESTED-OPEN",
            Self::Ended => "HF-ORM-ENDED",
            Self::StreamOpen => "HF-ORM-STREAM-OPEN",
            Self::CutOff => "HF-ORM-CUT-OFF",
            Self::Options { .. } => "HF-ORM-OPTIONS",
            Self::Value { .. } => "HF-ORM-VALUE",
        }
    }
}

impl From<OrmError> for sqlx::Error {
    /// Wraps the error in the variant that Handfast's own errors travel in.
    fn from(error: OrmError) -> Self {
        Self::AnyDriverError(Box::new(error))
    }
}

impl From<OrmError> for DbErr {
    fn from(error: OrmError) -> Self {
        exec_error(error.into())
    }
}

/// The failure behind a [`DbErr`] that Handfast has raised. Failures of the database itself, such
/// as a unique key that is there already, are left to [`DbErr::sql_err`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Cause<'e> {
    /// AT mode has refused a statement, or could not commit.
    At(&'e AtError),
    /// Two-phase commit has refused a statement, or could not prepare.
    Xa(&'e XaError),
    /// An event could not be emitted.
    Outbox(&'e OutboxError),
    /// A transaction or a value was misused.
    Orm(&'e OrmError),
}

impl<'e> Cause<'e> {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(self) -> &'e str {
        match self {
            Self::At(error) => error.code(),
            Self::Xa(error) => error.code(),
            Self::Outbox(error) => error.code(),
            Self::Orm(error) => error.code(),
        }
    }
}

/// Returns the failure of Handfast that a SeaORM error holds, if it holds one.
///
/// ```
/// use handfast_sea_orm::{Cause, cause};
/// use sea_orm::DbErr;
///
/// fn code(error: &DbErr) -> Option<&str> {
///     cause(error).map(Cause::code) // Such as `HF-AT-NO-PRIMARY-KEY`.
/// }
/// assert_eq!(code(&DbErr::RecordNotInserted), None);
/// ```
#[must_use]
pub fn cause(error: &DbErr) -> Option<Cause<'_>> {
    let (DbErr::Exec(RuntimeErr::SqlxError(carrier))
    | DbErr::Query(RuntimeErr::SqlxError(carrier))
    | DbErr::Conn(RuntimeErr::SqlxError(carrier))) = error
    else {
        return None;
    };
    let at = AtError::of(carrier).map(Cause::At);
    let xa = || XaError::of(carrier).map(Cause::Xa);
    let outbox = || OutboxError::of(carrier).map(Cause::Outbox);
    at.or_else(xa).or_else(outbox).or_else(|| ours(carrier).map(Cause::Orm))
}

fn ours(error: &sqlx::Error) -> Option<&OrmError> {
    if let sqlx::Error::AnyDriverError(inner) = error { inner.downcast_ref() } else { None }
}

/// The error of a statement that changes rows, and of the end of a transaction.
pub(crate) fn exec_error(error: sqlx::Error) -> DbErr {
    connection_error(&error).unwrap_or_else(|| DbErr::Exec(RuntimeErr::SqlxError(error.into())))
}

/// The error of a statement that returns rows.
pub(crate) fn query_error(error: sqlx::Error) -> DbErr {
    connection_error(&error).unwrap_or_else(|| DbErr::Query(RuntimeErr::SqlxError(error.into())))
}

/// SeaORM has an error of its own for a pool without a free connection.
fn connection_error(error: &sqlx::Error) -> Option<DbErr> {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return Some(DbErr::ConnectionAcquire(ConnAcquireErr::Timeout));
    }
    let is_closed = matches!(error, sqlx::Error::PoolClosed);
    is_closed.then_some(DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: impl Into<sqlx::Error>) -> Option<String> {
        cause(&exec_error(error.into())).map(|cause| cause.code().to_owned())
    }

    #[test]
    fn the_cause_of_each_part_is_found_again() {
        assert_eq!(code(AtError::Ended).as_deref(), Some("HF-AT-ENDED"));
        assert_eq!(code(XaError::PreparedDisabled).as_deref(), Some("HF-XA-PREPARED-DISABLED"));
        let event = OutboxError::Malformed { reason: "r".to_owned() };
        assert_eq!(code(event).as_deref(), Some("HF-OUTBOX-MALFORMED"));
        assert_eq!(code(OrmError::Ended).as_deref(), Some("HF-ORM-ENDED"));
        assert_eq!(code(sqlx::Error::RowNotFound), None);
        assert!(cause(&DbErr::RecordNotInserted).is_none());
        let query = query_error(AtError::Ended.into());
        assert_eq!(cause(&query).map(Cause::code), Some("HF-AT-ENDED"));
    }

    #[test]
    fn a_pool_without_a_connection_is_told_as_seaorm_does() {
        let timed_out = exec_error(sqlx::Error::PoolTimedOut);
        assert_eq!(timed_out, DbErr::ConnectionAcquire(ConnAcquireErr::Timeout));
        let closed = query_error(sqlx::Error::PoolClosed);
        assert_eq!(closed, DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed));
    }

    /// A text without its code cannot be looked up in `docs/errors.md`.
    #[test]
    fn every_text_ends_with_its_code() {
        let errors = [
            OrmError::NestedOpen,
            OrmError::Ended,
            OrmError::StreamOpen,
            OrmError::CutOff,
            OrmError::Options { option: "o".to_owned(), advice: "a" },
            OrmError::Value { position: 1, what: "an array", product: "MySQL" },
        ];
        for error in errors {
            let code = error.code();
            let text = DbErr::from(error).to_string();
            assert!(text.ends_with(&format!("({code})")), "{text}");
            assert!(!text.contains("returned from database"), "{text}");
        }
    }
}
