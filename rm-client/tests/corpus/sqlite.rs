//! SQLite.

use std::time::Duration;

use either::Either;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use handfast::AtTransaction;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous, SqliteValueRef};
use sqlx::{
    AssertSqlSafe, Column as _, Decode, Executor, Pool, Row, Sqlite, Transaction, TypeInfo,
    ValueRef,
};

use crate::database::{
    Answer, Fresh, Generator, Product, TextRow, execution, hex, query, steps, text_row,
};
use crate::entry::{Bound, Entry};

/// The clauses of a locking read, which SQLite does not have and the library takes off.
const LOCKING: [&str; 3] = ["FOR UPDATE SKIP LOCKED", "FOR UPDATE NOWAIT", "FOR UPDATE"];

impl Product for Sqlite {
    const FILE: &'static str = "sqlite";
    const TITLE: &'static str = "SQLite";
    /// Inside of a transaction it has no effect, so the connection stays unchecked.
    const UNCHECKED: [&'static str; 2] = ["PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"];

    fn create() -> BoxFuture<'static, Fresh<Self>> {
        async {
            let directory = tempfile::tempdir().unwrap();
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(directory.path().join("corpus.db"))
                .create_if_missing(true)
                .busy_timeout(Duration::from_secs(60))
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Off);
            let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(4);
            (pool.connect_with(options).await.unwrap(), Some(directory))
        }
        .boxed()
    }

    fn list_tables() -> &'static str {
        "SELECT t.name, \
                'SELECT ''' || t.name || ''', ' || \
                (SELECT group_concat('typeof(\"' || c.name || '\") || quote(\"' || c.name || '\")', \
                                     ' || ''|'' || ') \
                 FROM pragma_table_xinfo(t.name) AS c) || \
                ' FROM \"' || t.name || '\"' \
         FROM sqlite_schema AS t \
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.rowid"
    }

    fn generators(pool: &Pool<Self>) -> BoxFuture<'_, Vec<Generator>> {
        const READ: &str = "SELECT '(' || quote(name) || ', ' || seq || ')' FROM sqlite_sequence";
        async {
            // The table is there once a table with AUTOINCREMENT is.
            let Ok(numbers) = Self::texts(pool, READ).await else { return Vec::new() };
            let numbers: Vec<String> = numbers.into_iter().flatten().flatten().collect();
            let mut sql = "DELETE FROM sqlite_sequence".to_owned();
            if !numbers.is_empty() {
                sql += &format!("; INSERT INTO sqlite_sequence VALUES {}", numbers.join(", "));
            }
            vec![Generator { table: None, sql }]
        }
        .boxed()
    }

    fn cell(value: SqliteValueRef<'_>) -> Result<Option<String>, sqlx::Error> {
        if value.is_null() {
            return Ok(None);
        }
        let type_name = value.type_info().name().to_owned();
        let text = match type_name.as_str() {
            "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(|number| number.to_string()),
            "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(|number| number.to_string()),
            "TEXT" => <String as Decode<Sqlite>>::decode(value),
            _ => <Vec<u8> as Decode<Sqlite>>::decode(value).map(|bytes| hex(&bytes)),
        };
        Ok(Some(format!("{type_name} {}", text.map_err(sqlx::Error::Decode)?)))
    }

    /// Takes the clause off as the library does inside of a global.
    fn past_the_library(sql: &str) -> String {
        LOCKING.iter().find_map(|clause| sql.strip_suffix(clause)).unwrap_or(sql).to_owned()
    }

    execution!(Sqlite);
}
