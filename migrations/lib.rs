//! Numbered SQL for the client tables of Handfast, per database.
//!
//! The `.sql` files beside this one are embedded unchanged, so that an administrator can apply them
//! by hand and the client library can apply them on its own. This crate knows no driver. The client
//! library executes the statements, records the applied steps, and excludes a second runner. The
//! SQL that it needs for that (the history table, the locks) is here too, because it differs per
//! database.

use sha2::{Digest, Sha256};

/// A database product that has client tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Database {
    /// PostgreSQL 13 or later.
    Postgres,
    /// MySQL 8 or MariaDB 10.6, or later.
    MySql,
    /// SQLite 3.37 or later.
    Sqlite,
}

/// One numbered step of the client tables. A published step never changes, not even in a comment:
/// the history table keeps a checksum of its text. Corrections are further steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number, from 1 without gaps.
    pub number: u32,
    /// Its name, as in the file name.
    pub name: &'static str,
    /// The file's text, comments included.
    pub text: &'static str,
}

/// The statements by which a runner excludes others while it works.
///
/// `acquire` comes first on the run's connection and must have answered before anything else is
/// sent; `release` or `abandon` comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// Waits for other runners. MySQL answers its one statement with 1, or with 0 after a minute of
    /// waiting: then the run must not begin.
    pub acquire: &'static [&'static str],
    /// Admits the next runner, and commits this run's work if it is one transaction.
    pub release: &'static str,
    /// Abandons the run, and rolls its work back if it is one transaction.
    pub abandon: &'static str,
}

const POSTGRES: &[Migration] = &[
    Migration { number: 1, name: "client", text: include_str!("postgres/0001_client.sql") },
    Migration { number: 2, name: "fence", text: include_str!("postgres/0002_fence.sql") },
    Migration { number: 3, name: "lock", text: include_str!("postgres/0003_lock.sql") },
    Migration { number: 4, name: "outbox", text: include_str!("postgres/0004_outbox.sql") },
    Migration { number: 5, name: "lock_share", text: include_str!("postgres/0005_lock_share.sql") },
    Migration { number: 6, name: "guard", text: include_str!("postgres/0006_guard.sql") },
];

const MYSQL: &[Migration] = &[
    Migration { number: 1, name: "client", text: include_str!("mysql/0001_client.sql") },
    Migration { number: 2, name: "fence", text: include_str!("mysql/0002_fence.sql") },
    Migration { number: 3, name: "lock", text: include_str!("mysql/0003_lock.sql") },
    Migration { number: 4, name: "outbox", text: include_str!("mysql/0004_outbox.sql") },
    Migration { number: 5, name: "lock_share", text: include_str!("mysql/0005_lock_share.sql") },
    Migration { number: 6, name: "guard", text: include_str!("mysql/0006_guard.sql") },
];

const SQLITE: &[Migration] = &[
    Migration { number: 1, name: "client", text: include_str!("sqlite/0001_client.sql") },
    Migration { number: 2, name: "fence", text: include_str!("sqlite/0002_fence.sql") },
    Migration { number: 3, name: "lock", text: include_str!("sqlite/0003_lock.sql") },
    Migration { number: 4, name: "outbox", text: include_str!("sqlite/0004_outbox.sql") },
    Migration { number: 5, name: "lock_share", text: include_str!("sqlite/0005_lock_share.sql") },
];

/// Returns the steps that create the client tables, in the order in which they are applied.
///
/// ```
/// use handfast_migrations::{Database, client_migrations};
///
/// let first = &client_migrations(Database::Sqlite)[0];
/// assert_eq!((first.number, first.name), (1, "client"));
/// assert!(first.statements().next().unwrap().contains("CREATE TABLE IF NOT EXISTS undo_log"));
/// ```
#[must_use]
pub fn client_migrations(database: Database) -> &'static [Migration] {
    match database {
        Database::Postgres => POSTGRES,
        Database::MySql => MYSQL,
        Database::Sqlite => SQLITE,
    }
}

/// Returns the tables that a database needs to take part in global transactions in AT mode.
#[must_use]
pub fn client_tables() -> &'static [&'static str] {
    &["undo_log", "handfast_identity"]
}

/// The table that a database needs to take part in the other modes.
pub const FENCE_TABLE: &str = "branch_fence";

/// The tables that a database needs to send and receive events.
pub const EVENT_TABLES: &[&str] = &["event_outbox", "event_lane", "event_relay", "event_inbox"];

/// The tables that a database needs to keep distributed locks. It needs only the last one to be
/// protected by locks that are kept elsewhere.
pub const LOCK_TABLES: [&str; 4] =
    ["distributed_lock", "distributed_lock_waiter", "distributed_lock_share", "lock_claim"];

/// The tables that guarded tables need, on PostgreSQL, MySQL and MariaDB.
pub const GUARD_TABLES: [&str; 3] = ["guarded_table", "guarded_row", "guarded_note"];

/// Returns the statement that creates the history table of applied steps, if it is missing. Its
/// columns are `number`, `name`, `checksum` and `applied_at`; the last one has a default.
#[must_use]
pub fn history_table(database: Database) -> &'static str {
    match database {
        Database::Postgres => {
            "CREATE TABLE IF NOT EXISTS handfast_migrations (\
             number INT NOT NULL PRIMARY KEY, name VARCHAR(128) NOT NULL, \
             checksum VARCHAR(64) NOT NULL, \
             applied_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        }
        Database::MySql => {
            "CREATE TABLE IF NOT EXISTS handfast_migrations (\
             number INT NOT NULL PRIMARY KEY, name VARCHAR(128) NOT NULL, \
             checksum VARCHAR(64) NOT NULL, \
             applied_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE = InnoDB"
        }
        Database::Sqlite => {
            "CREATE TABLE IF NOT EXISTS handfast_migrations (\
             number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, \
             applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))) STRICT"
        }
    }
}

/// Returns the statements that exclude other runners. All statements of a run use one connection.
///
/// On PostgreSQL and SQLite a run is one transaction, which `acquire` opens. MySQL commits every
/// DDL statement by itself, so there the lock belongs to the connection, and an interrupted run is
/// repeated, which the idempotent statements allow.
#[must_use]
pub fn exclusion(database: Database) -> Exclusion {
    match database {
        Database::Postgres => Exclusion {
            acquire: &["BEGIN", "SELECT pg_advisory_xact_lock(5207021478)"],
            release: "COMMIT",
            abandon: "ROLLBACK",
        },
        Database::MySql => Exclusion {
            acquire: &["SELECT GET_LOCK(CONCAT('handfast:', SHA1(DATABASE())), 60)"],
            release: "DO RELEASE_LOCK(CONCAT('handfast:', SHA1(DATABASE())))",
            abandon: "DO RELEASE_LOCK(CONCAT('handfast:', SHA1(DATABASE())))",
        },
        Database::Sqlite => {
            Exclusion { acquire: &["BEGIN IMMEDIATE"], release: "COMMIT", abandon: "ROLLBACK" }
        }
    }
}

impl Migration {
    /// Returns the statements of the step, in order, without comments and final semicolons. Each
    /// can be repeated without harm.
    pub fn statements(&self) -> impl Iterator<Item = &'static str> + use<> {
        split_statements(self.text)
    }

    /// Returns the SHA-256 of the text in lower-case hex. The history table keeps it, so that a
    /// changed step is noticed.
    #[must_use]
    pub fn checksum(&self) -> String {
        Sha256::digest(self.text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Splits at semicolons that end a line. No literal or comment in the files has one there.
fn split_statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(skip_comments).filter(|statement| !statement.is_empty())
}

/// Skips the comment lines and blank lines before a statement.
fn skip_comments(statement: &str) -> &str {
    let mut rest = statement.trim();
    while rest.starts_with("--") {
        rest = rest.split_once('\n').map_or("", |(_comment, after)| after.trim_start());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASES: [Database; 3] = [Database::Postgres, Database::MySql, Database::Sqlite];

    #[test]
    fn steps_are_numbered_without_gaps() {
        for database in DATABASES {
            let numbers: Vec<u32> =
                client_migrations(database).iter().map(|step| step.number).collect();
            let expected: Vec<u32> = (1..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "{database:?}");
        }
    }

    #[test]
    fn every_client_table_is_created_on_every_database() {
        for database in DATABASES {
            let events = EVENT_TABLES.iter();
            for table in
                client_tables().iter().chain([&FENCE_TABLE]).chain(&LOCK_TABLES).chain(events)
            {
                let opening = format!("CREATE TABLE IF NOT EXISTS {table} (");
                let made = client_migrations(database)
                    .iter()
                    .flat_map(Migration::statements)
                    .any(|statement| statement.starts_with(&opening));
                assert!(made, "{database:?}: {table}");
            }
        }
    }

    #[test]
    fn every_statement_can_be_repeated() {
        for database in DATABASES {
            for statement in client_migrations(database).iter().flat_map(Migration::statements) {
                let repeatable = ["IF NOT EXISTS", "ON CONFLICT", "INSERT IGNORE", "OR IGNORE"];
                assert!(repeatable.iter().any(|words| statement.contains(words)), "{statement}");
            }
        }
    }

    #[test]
    fn statements_come_without_comments_and_semicolons() {
        let text =
            "-- A comment.\n\n-- Another.\nCREATE TABLE a (\n    b INT -- inner\n);\n\nSELECT 1;\n";
        let statements: Vec<&str> = split_statements(text).collect();
        assert_eq!(statements, ["CREATE TABLE a (\n    b INT -- inner\n)", "SELECT 1"]);
    }

    #[test]
    fn the_checksum_follows_the_text() {
        let step = Migration { number: 1, name: "a", text: "SELECT 1;\n" };
        let changed = Migration { text: "SELECT 2;\n", ..step };
        assert_eq!(step.checksum().len(), 64);
        assert_ne!(step.checksum(), changed.checksum());
    }
}
