//! Which errors of a database no repetition cures, so that a rollback that meets one asks a person
//! instead of trying for ever. One table a database, of codes alone.
//!
//! Lasting is what lies in the statement, its values, the table or its permissions: all of it is
//! the same the next time. Passing is what lies in the moment: other transactions, connections,
//! space, limits, servers that stop or only read. What no table names counts as passing, for a
//! person asked in vain is worse than another attempt that everybody can see.

use sqlx::error::DatabaseError;

/// What an error says about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It may succeed.
    Passing,
    /// It fails in the same way.
    Lasting,
    /// It fails in the same way unless the session is less strict about values.
    Strict,
}

/// Whether strict rules alone refuse a value.
pub(crate) fn is_strict(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| meaning(error) == Meaning::Strict)
}

/// What the answer of a database says about the next attempt.
pub(crate) fn meaning(error: &(dyn DatabaseError + 'static)) -> Meaning {
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
        return code.map_or(Meaning::Passing, sqlite);
    }
    #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
    let _of_no_database = error;
    Meaning::Passing
}

/// By SQLSTATE. Of class 0A one error tells of a statement that was prepared before its table was
/// altered; the server's routine tells it from the others.
#[cfg(feature = "postgres")]
fn postgres(code: &str, routine: Option<&str>) -> Meaning {
    /// Not supported, cardinality, data, integrity, triggered data change, external routines,
    /// syntax and access, check option, program limits, PL/pgSQL.
    const CLASSES: [&str; 11] = ["0A", "21", "22", "23", "27", "38", "39", "42", "44", "54", "P0"];
    /// A column or table that the next attempt sees in the catalogue to be gone; a name that a
    /// prepared statement has behind a pooler.
    const PASSING: [&str; 3] = ["42703", "42P01", "42P05"];
    let stale = routine == Some("RevalidateCachedQuery");
    let lasts = code.get(..2).is_some_and(|class| CLASSES.contains(&class));
    if lasts && !stale && !PASSING.contains(&code) { Meaning::Lasting } else { Meaning::Passing }
}

/// By error number, of MySQL and MariaDB, which share those below 1900 and whose others do not
/// collide here.
#[cfg(feature = "mysql")]
fn mysql(number: u16) -> Meaning {
    match number {
        // Out of range, truncated, wrong, incorrect, too long, wrong for its type.
        1264 | 1265 | 1292 | 1366 | 1406 | 1411 => Meaning::Strict,
        // Constraints: NOT NULL, unique, foreign keys, CHECK (3819; 4025 of MariaDB).
        1022 | 1048 | 1062 | 1169 | 1216 | 1217 | 1451 | 1452 | 1557 | 1586 | 1761 | 1762
        | 1859 | 3819 | 4025 => Meaning::Lasting,
        // Other values: no default, division by zero, illegal, overflow, geometry, encodings, JSON.
        1138 | 1263 | 1267 | 1270 | 1271 | 1300 | 1364 | 1365 | 1367 | 1416 | 1441 | 1525
        | 1690 | 3140 | 3141 | 3156 | 3854 | 4038 | 4078 => Meaning::Lasting,
        // Rows that no partition takes, rows and packets that are too large.
        1118 | 1153 | 1390 | 1526 | 1591 | 1748 => Meaning::Lasting,
        // Generated columns.
        1906 | 3105 => Meaning::Lasting,
        // What triggers say and call: SIGNAL, a table in use, a definer or routine that is gone.
        1305 | 1336 | 1422 | 1424 | 1442 | 1449 | 1456 | 1644 => Meaning::Lasting,
        // Permissions; syntax; variables and time zones that the server does not know.
        1064 | 1142 | 1143 | 1193 | 1227 | 1231 | 1298 | 1370 => Meaning::Lasting,
        _ => Meaning::Passing,
    }
}

/// By extended result code.
#[cfg(feature = "sqlite")]
fn sqlite(code: i32) -> Meaning {
    match (code & 0xff, code) {
        // To be tried again, and a snapshot that is too old.
        (1, 513 | 769) => Meaning::Passing,
        // SQL, too large, constraints with STRICT types and RAISE, datatype mismatch, range.
        // Nothing can have changed the schema since the writer lock was taken.
        (1 | 18 | 19 | 20 | 25, _) => Meaning::Lasting,
        _ => Meaning::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::Meaning::{Lasting, Passing, Strict};

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres() {
        for (code, expected) in [
            ("22001", Lasting), // string_data_right_truncation
            ("22003", Lasting), // numeric_value_out_of_range
            ("22P05", Lasting), // untranslatable_character
            ("23505", Lasting), // unique_violation
            ("23514", Lasting), // check_violation
            ("0A000", Lasting), // feature_not_supported
            ("42501", Lasting), // insufficient_privilege
            ("42804", Lasting), // datatype_mismatch
            ("428C9", Lasting), // generated_always
            ("44000", Lasting), // with_check_option_violation
            ("54000", Lasting), // program_limit_exceeded
            ("P0001", Lasting), // raise_exception
            ("42703", Passing), // undefined_column
            ("42P01", Passing), // undefined_table
            ("42P05", Passing), // duplicate_prepared_statement
            ("26000", Passing), // invalid_sql_statement_name
            ("08006", Passing), // connection_failure
            ("25006", Passing), // read_only_sql_transaction
            ("28P01", Passing), // invalid_password
            ("40001", Passing), // serialization_failure
            ("40P01", Passing), // deadlock_detected
            ("53100", Passing), // disk_full
            ("53300", Passing), // too_many_connections
            ("55P03", Passing), // lock_not_available
            ("57014", Passing), // query_canceled
            ("57P01", Passing), // admin_shutdown
            ("58030", Passing), // io_error
            ("XX000", Passing), // internal_error
            ("ZZ999", Passing), // nothing that is known
            ("", Passing),
        ] {
            assert_eq!(super::postgres(code, None), expected, "{code}");
        }
        assert_eq!(super::postgres("0A000", Some("RevalidateCachedQuery")), Passing);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql() {
        for (number, expected) in [
            (1264, Strict),  // out of range
            (1265, Strict),  // data truncated
            (1292, Strict),  // truncated incorrect value
            (1366, Strict),  // incorrect string value
            (1406, Strict),  // data too long
            (1048, Lasting), // column cannot be null
            (1062, Lasting), // duplicate entry
            (1064, Lasting), // syntax
            (1142, Lasting), // command denied
            (1153, Lasting), // packet too large
            (1298, Lasting), // unknown time zone
            (1442, Lasting), // table in use by the statement that fired the trigger
            (1451, Lasting), // a row refers to it
            (1526, Lasting), // no partition for the value
            (1644, Lasting), // SIGNAL
            (1906, Lasting), // generated column, MariaDB
            (3105, Lasting), // generated column, MySQL
            (3819, Lasting), // CHECK, MySQL
            (4025, Lasting), // CHECK, MariaDB
            (1020, Passing), // record has changed
            (1021, Passing), // disk full
            (1030, Passing), // error of the storage engine
            (1040, Passing), // too many connections
            (1041, Passing), // out of memory
            (1053, Passing), // shutdown
            (1054, Passing), // unknown column
            (1114, Passing), // table is full
            (1146, Passing), // no such table
            (1158, Passing), // network
            (1205, Passing), // lock wait timeout
            (1206, Passing), // lock table full
            (1213, Passing), // deadlock
            (1226, Passing), // limit of the account
            (1290, Passing), // --read-only
            (1317, Passing), // interrupted
            (1412, Passing), // table definition has changed
            (1792, Passing), // read-only transaction
            (1927, Passing), // connection killed
            (1969, Passing), // max_statement_time
            (9999, Passing), // nothing that is known
        ] {
            assert_eq!(super::mysql(number), expected, "{number}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite() {
        for (code, expected) in [
            (1, Lasting),     // SQLITE_ERROR
            (257, Lasting),   // SQLITE_ERROR_MISSING_COLLSEQ
            (18, Lasting),    // SQLITE_TOOBIG
            (275, Lasting),   // SQLITE_CONSTRAINT_CHECK
            (787, Lasting),   // SQLITE_CONSTRAINT_FOREIGNKEY
            (1811, Lasting),  // SQLITE_CONSTRAINT_TRIGGER
            (2067, Lasting),  // SQLITE_CONSTRAINT_UNIQUE
            (3091, Lasting),  // SQLITE_CONSTRAINT_DATATYPE
            (20, Lasting),    // SQLITE_MISMATCH
            (25, Lasting),    // SQLITE_RANGE
            (513, Passing),   // SQLITE_ERROR_RETRY
            (769, Passing),   // SQLITE_ERROR_SNAPSHOT
            (3, Passing),     // SQLITE_PERM
            (5, Passing),     // SQLITE_BUSY
            (517, Passing),   // SQLITE_BUSY_SNAPSHOT
            (6, Passing),     // SQLITE_LOCKED
            (7, Passing),     // SQLITE_NOMEM
            (8, Passing),     // SQLITE_READONLY
            (9, Passing),     // SQLITE_INTERRUPT
            (10, Passing),    // SQLITE_IOERR
            (11, Passing),    // SQLITE_CORRUPT
            (13, Passing),    // SQLITE_FULL
            (14, Passing),    // SQLITE_CANTOPEN
            (17, Passing),    // SQLITE_SCHEMA
            (4_095, Passing), // nothing that is known
        ] {
            assert_eq!(super::sqlite(code), expected, "{code}");
        }
    }
}
