//! Classes of database errors: whether another attempt may succeed. A rollback that meets a
//! permanent error goes to an operator instead of trying forever. There is one table of codes per
//! database.
//!
//! A permanent error comes from the statement, its values, the table or its permissions, all of
//! which are the same the next time. A transient error comes from the moment: other transactions,
//! connections, space, limits, servers that stop or are read-only. A code in no table counts as
//! transient: calling an operator in vain is worse than another attempt, which operators can see.

use sqlx::error::DatabaseError;

/// The class of an error, by the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The next attempt may succeed.
    Transient,
    /// The next attempt fails in the same way.
    Permanent,
    /// The next attempt fails in the same way unless the session is less strict about values.
    StrictMode,
}

/// Whether only strict rules refuse a value.
pub(crate) fn needs_lenient_mode(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| of(error) == ErrorClass::StrictMode)
}

/// Returns the class of an error of a database.
pub(crate) fn of(error: &(dyn DatabaseError + 'static)) -> ErrorClass {
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return postgres(error.code(), error.routine());
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return mysql(error.number());
    }
    #[cfg(feature = "sqlite")]
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        let code = error.code().and_then(|code| code.parse().ok());
        return code.map_or(ErrorClass::Transient, sqlite);
    }
    #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
    let _of_no_database = error;
    ErrorClass::Transient
}

/// Whether an error says that the server is lost. So it is not the server's: a proxy has taken its
/// place, and whatever it had sent there may still be carried out.
pub(crate) fn says_server_is_lost(error: &(dyn DatabaseError + 'static)) -> bool {
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return is_lost_postgres(error.code());
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return is_lost_mysql(error.number());
    }
    let _of_no_server = error;
    false
}

/// The class of connections.
#[cfg(feature = "postgres")]
fn is_lost_postgres(code: &str) -> bool {
    code.starts_with("08")
}

/// The numbers of clients, such as 2013, and those of ProxySQL.
#[cfg(feature = "mysql")]
fn is_lost_mysql(number: u16) -> bool {
    matches!(number, 2000..=2999 | 9000..=9999)
}

/// Classifies by SQLSTATE. One error of class 0A means that a statement was prepared before its
/// table was altered; the server's routine distinguishes it from the others.
#[cfg(feature = "postgres")]
fn postgres(code: &str, routine: Option<&str>) -> ErrorClass {
    /// Not supported, cardinality, data, integrity, triggered data change, external routines,
    /// syntax and access, check option, program limits, PL/pgSQL.
    const CLASSES: [&str; 11] = ["0A", "21", "22", "23", "27", "38", "39", "42", "44", "54", "P0"];
    /// A column or table that is gone, as the next attempt sees in the catalogue; a name of a
    /// prepared statement that is taken already, as happens behind a pooler.
    const TRANSIENT: [&str; 3] = ["42703", "42P01", "42P05"];
    let stale = routine == Some("RevalidateCachedQuery");
    let is_permanent = code.get(..2).is_some_and(|class| CLASSES.contains(&class));
    if is_permanent && !stale && !TRANSIENT.contains(&code) {
        ErrorClass::Permanent
    } else {
        ErrorClass::Transient
    }
}

/// Classifies by error number. MySQL and MariaDB share the numbers below 1900, and none of the
/// others listed here means something else on the other one.
#[cfg(feature = "mysql")]
fn mysql(number: u16) -> ErrorClass {
    match number {
        // Out of range, truncated, wrong, incorrect, too long, wrong for its type.
        1264 | 1265 | 1292 | 1366 | 1406 | 1411 => ErrorClass::StrictMode,
        // Constraints: NOT NULL, unique, foreign keys, CHECK (3819; 4025 of MariaDB).
        1022 | 1048 | 1062 | 1169 | 1216 | 1217 | 1451 | 1452 | 1557 | 1586 | 1761 | 1762
        | 1859 | 3819 | 4025 => ErrorClass::Permanent,
        // Other values: no default, division by zero, illegal, overflow, geometry, encodings, JSON.
        1138 | 1263 | 1267 | 1270 | 1271 | 1300 | 1364 | 1365 | 1367 | 1416 | 1441 | 1525
        | 1690 | 3140 | 3141 | 3156 | 3854 | 4038 | 4078 => ErrorClass::Permanent,
        // Rows that no partition takes, rows and packets that are too large.
        1118 | 1153 | 1390 | 1526 | 1591 | 1748 => ErrorClass::Permanent,
        // Generated columns.
        1906 | 3105 => ErrorClass::Permanent,
        // Errors of triggers: SIGNAL, a table in use, a definer or routine that is gone.
        1305 | 1336 | 1422 | 1424 | 1442 | 1449 | 1456 | 1644 => ErrorClass::Permanent,
        // Permissions; syntax; variables and time zones that the server does not know.
        1064 | 1142 | 1143 | 1193 | 1227 | 1231 | 1298 | 1370 => ErrorClass::Permanent,
        _ => ErrorClass::Transient,
    }
}

/// Classifies by extended result code.
#[cfg(feature = "sqlite")]
fn sqlite(code: i32) -> ErrorClass {
    match (code & 0xff, code) {
        // SQLITE_ERROR_RETRY and SQLITE_ERROR_SNAPSHOT.
        (1, 513 | 769) => ErrorClass::Transient,
        // SQL, too large, constraints with STRICT types and RAISE, datatype mismatch, range.
        // Nothing can have changed the schema since the writer lock was taken.
        (1 | 18 | 19 | 20 | 25, _) => ErrorClass::Permanent,
        _ => ErrorClass::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorClass::{Permanent, StrictMode, Transient};

    #[cfg(feature = "postgres")]
    #[test]
    fn a_lost_server_of_postgres() {
        assert!(super::is_lost_postgres("08P01") && super::is_lost_postgres("08006"));
        assert!(!super::is_lost_postgres("40001") && !super::is_lost_postgres("57014"));
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_lost_server_of_mysql() {
        assert!(super::is_lost_mysql(2013) && super::is_lost_mysql(9001));
        // Interrupted, and a condition of a trigger.
        assert!(!super::is_lost_mysql(1317) && !super::is_lost_mysql(1644));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres() {
        for (code, expected) in [
            ("22001", Permanent), // string_data_right_truncation
            ("22003", Permanent), // numeric_value_out_of_range
            ("22P05", Permanent), // untranslatable_character
            ("23505", Permanent), // unique_violation
            ("23514", Permanent), // check_violation
            ("0A000", Permanent), // feature_not_supported
            ("42501", Permanent), // insufficient_privilege
            ("42804", Permanent), // datatype_mismatch
            ("428C9", Permanent), // generated_always
            ("44000", Permanent), // with_check_option_violation
            ("54000", Permanent), // program_limit_exceeded
            ("P0001", Permanent), // raise_exception
            ("42703", Transient), // undefined_column
            ("42P01", Transient), // undefined_table
            ("42P05", Transient), // duplicate_prepared_statement
            ("26000", Transient), // invalid_sql_statement_name
            ("08006", Transient), // connection_failure
            ("25006", Transient), // read_only_sql_transaction
            ("28P01", Transient), // invalid_password
            ("40001", Transient), // serialization_failure
            ("40P01", Transient), // deadlock_detected
            ("53100", Transient), // disk_full
            ("53300", Transient), // too_many_connections
            ("55P03", Transient), // lock_not_available
            ("57014", Transient), // query_canceled
            ("57P01", Transient), // admin_shutdown
            ("58030", Transient), // io_error
            ("XX000", Transient), // internal_error
            ("ZZ999", Transient), // nothing that is known
            ("", Transient),
        ] {
            assert_eq!(super::postgres(code, None), expected, "{code}");
        }
        assert_eq!(super::postgres("0A000", Some("RevalidateCachedQuery")), Transient);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql() {
        for (number, expected) in [
            (1264, StrictMode), // out of range
            (1265, StrictMode), // data truncated
            (1292, StrictMode), // truncated incorrect value
            (1366, StrictMode), // incorrect string value
            (1406, StrictMode), // data too long
            (1048, Permanent),  // column cannot be null
            (1062, Permanent),  // duplicate entry
            (1064, Permanent),  // syntax
            (1142, Permanent),  // command denied
            (1153, Permanent),  // packet too large
            (1298, Permanent),  // unknown time zone
            (1442, Permanent),  // table in use by the statement that fired the trigger
            (1451, Permanent),  // a row refers to it
            (1526, Permanent),  // no partition for the value
            (1644, Permanent),  // SIGNAL
            (1906, Permanent),  // generated column, MariaDB
            (3105, Permanent),  // generated column, MySQL
            (3819, Permanent),  // CHECK, MySQL
            (4025, Permanent),  // CHECK, MariaDB
            (1020, Transient),  // record has changed
            (1021, Transient),  // disk full
            (1030, Transient),  // error of the storage engine
            (1040, Transient),  // too many connections
            (1041, Transient),  // out of memory
            (1053, Transient),  // shutdown
            (1054, Transient),  // unknown column
            (1114, Transient),  // table is full
            (1146, Transient),  // no such table
            (1158, Transient),  // network
            (1205, Transient),  // lock wait timeout
            (1206, Transient),  // lock table full
            (1213, Transient),  // deadlock
            (1226, Transient),  // limit of the account
            (1290, Transient),  // --read-only
            (1317, Transient),  // interrupted
            (1412, Transient),  // table definition has changed
            (1792, Transient),  // read-only transaction
            (1927, Transient),  // connection killed
            (1969, Transient),  // max_statement_time
            (9999, Transient),  // nothing that is known
        ] {
            assert_eq!(super::mysql(number), expected, "{number}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite() {
        for (code, expected) in [
            (1, Permanent),     // SQLITE_ERROR
            (257, Permanent),   // SQLITE_ERROR_MISSING_COLLSEQ
            (18, Permanent),    // SQLITE_TOOBIG
            (275, Permanent),   // SQLITE_CONSTRAINT_CHECK
            (787, Permanent),   // SQLITE_CONSTRAINT_FOREIGNKEY
            (1811, Permanent),  // SQLITE_CONSTRAINT_TRIGGER
            (2067, Permanent),  // SQLITE_CONSTRAINT_UNIQUE
            (3091, Permanent),  // SQLITE_CONSTRAINT_DATATYPE
            (20, Permanent),    // SQLITE_MISMATCH
            (25, Permanent),    // SQLITE_RANGE
            (513, Transient),   // SQLITE_ERROR_RETRY
            (769, Transient),   // SQLITE_ERROR_SNAPSHOT
            (3, Transient),     // SQLITE_PERM
            (5, Transient),     // SQLITE_BUSY
            (517, Transient),   // SQLITE_BUSY_SNAPSHOT
            (6, Transient),     // SQLITE_LOCKED
            (7, Transient),     // SQLITE_NOMEM
            (8, Transient),     // SQLITE_READONLY
            (9, Transient),     // SQLITE_INTERRUPT
            (10, Transient),    // SQLITE_IOERR
            (11, Transient),    // SQLITE_CORRUPT
            (13, Transient),    // SQLITE_FULL
            (14, Transient),    // SQLITE_CANTOPEN
            (17, Transient),    // SQLITE_SCHEMA
            (4_095, Transient), // nothing that is known
        ] {
            assert_eq!(super::sqlite(code), expected, "{code}");
        }
    }
}
