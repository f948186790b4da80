//! The options that a transaction is begun with.

use sea_orm::{AccessMode, DbBackend, SqliteTransactionMode, TransactionOptions};

use crate::error::OrmError;
use crate::values::product;

/// Returns the statement that gives an open local transaction its options, if it needs one.
///
/// SQLite has one isolation level, which is the highest. Options that a transaction would silently
/// not have are refused.
pub(crate) fn statement(
    backend: DbBackend,
    options: TransactionOptions,
    is_branch: bool,
) -> Result<Option<String>, OrmError> {
    let TransactionOptions { isolation_level, access_mode, sqlite_transaction_mode } = options;
    match backend {
        DbBackend::Postgres => {
            let level = isolation_level.map(|level| format!("ISOLATION LEVEL {level}"));
            let settings = [level, access_mode.map(|mode| mode.to_string())];
            let settings: Vec<String> = settings.into_iter().flatten().collect();
            let text = format!("SET TRANSACTION {}", settings.join(" "));
            Ok(Some(text).filter(|_| !settings.is_empty()))
        }
        DbBackend::Sqlite => {
            refuse_read_only(backend, access_mode)?;
            match sqlite_transaction_mode {
                None | Some(SqliteTransactionMode::Deferred) => Ok(None),
                // A branch takes the writer lock at BEGIN by itself.
                Some(SqliteTransactionMode::Immediate) if is_branch => Ok(None),
                Some(mode) => Err(OrmError::Options {
                    option: format!("BEGIN {}", mode.sqlite_keyword()),
                    advice: "a branch begins IMMEDIATE, and a transaction outside of a global \
                             DEFERRED; leave the mode out",
                }),
            }
        }
        DbBackend::MySql | _ => {
            refuse_read_only(backend, access_mode)?;
            // The server takes the level before BEGIN alone, which is in Handfast's hands.
            isolation_level.map_or(Ok(None), |level| {
                Err(OrmError::Options {
                    option: format!("isolation level {level}"),
                    advice: "set the level for the sessions of the pool, with SET SESSION \
                             TRANSACTION in `after_connect`",
                })
            })
        }
    }
}

/// Refuses options for a nested transaction, which is a savepoint and has those around it.
pub(crate) fn refuse_nested(options: TransactionOptions) -> Result<(), OrmError> {
    if options == TransactionOptions::default() {
        return Ok(());
    }
    Err(OrmError::Options {
        option: "options of its own".to_owned(),
        advice: "it is nested, and has the options of the transaction around it: give them there",
    })
}

fn refuse_read_only(backend: DbBackend, mode: Option<AccessMode>) -> Result<(), OrmError> {
    if mode != Some(AccessMode::ReadOnly) {
        return Ok(());
    }
    Err(OrmError::Options {
        option: format!("READ ONLY on {}", product(backend)),
        advice: "use an account or a connection that cannot write",
    })
}

#[cfg(test)]
mod tests {
    use sea_orm::IsolationLevel;

    use super::*;

    const SERIALIZABLE: TransactionOptions = TransactionOptions {
        isolation_level: Some(IsolationLevel::Serializable),
        access_mode: None,
        sqlite_transaction_mode: None,
    };
    const READ_ONLY: TransactionOptions = TransactionOptions {
        isolation_level: None,
        access_mode: Some(AccessMode::ReadOnly),
        sqlite_transaction_mode: None,
    };

    fn in_mode(mode: SqliteTransactionMode) -> TransactionOptions {
        TransactionOptions { sqlite_transaction_mode: Some(mode), ..Default::default() }
    }

    fn check(backend: DbBackend, options: TransactionOptions, expected: Result<Option<&str>, ()>) {
        let found = statement(backend, options, true);
        let found = found.as_ref().map(Option::as_deref).map_err(|_| ());
        assert_eq!(found, expected, "{backend:?} {options:?}");
    }

    #[test]
    fn postgresql_sets_them_in_the_transaction() {
        let level = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE";
        check(DbBackend::Postgres, SERIALIZABLE, Ok(Some(level)));
        check(DbBackend::Postgres, READ_ONLY, Ok(Some("SET TRANSACTION READ ONLY")));
        let both = TransactionOptions { access_mode: READ_ONLY.access_mode, ..SERIALIZABLE };
        check(DbBackend::Postgres, both, Ok(Some(&format!("{level} READ ONLY"))));
        check(DbBackend::Postgres, TransactionOptions::default(), Ok(None));
    }

    #[test]
    fn what_would_silently_be_missing_is_refused() {
        check(DbBackend::MySql, SERIALIZABLE, Err(()));
        check(DbBackend::MySql, READ_ONLY, Err(()));
        check(DbBackend::MySql, TransactionOptions::default(), Ok(None));
        check(DbBackend::Sqlite, SERIALIZABLE, Ok(None));
        check(DbBackend::Sqlite, READ_ONLY, Err(()));
        check(DbBackend::Sqlite, in_mode(SqliteTransactionMode::Deferred), Ok(None));
        check(DbBackend::Sqlite, in_mode(SqliteTransactionMode::Immediate), Ok(None));
        check(DbBackend::Sqlite, in_mode(SqliteTransactionMode::Exclusive), Err(()));
        let outside = in_mode(SqliteTransactionMode::Immediate);
        assert!(statement(DbBackend::Sqlite, outside, false).is_err());
    }

    #[test]
    fn a_nested_transaction_has_none() {
        assert!(refuse_nested(TransactionOptions::default()).is_ok());
        assert!(refuse_nested(SERIALIZABLE).is_err());
    }
}
