//! SQLite: values by their own storage class, whatever the column was declared as.

mod arguments;
mod catalogue;
mod catalogue_rows;
mod triggers;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_rm_core::plan::{Dialect, Table, TableName};
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Connection, Decode, Pool, Row, SqlSafeStr, Sqlite, SqliteConnection, Transaction, TypeInfo,
    ValueRef,
};

use super::begin::begin_by;
use super::bound_query::BoundQuery;
use super::value::{Misfit, Value};
use super::{Backend, Carried, Identity, LoadedTable, Purpose, Steps, backend_basics, rows};

/// SQLite columns have no type that a value would have to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteColumn;

impl Backend for Sqlite {
    const DIALECT: Dialect = Dialect::Sqlite;
    const FOLDER: &'static str = "sqlite";
    const MIGRATIONS: handfast_migrations::Database = handfast_migrations::Database::Sqlite;
    const WAITS_WITH_LOCKS: bool = false;
    const COMMIT_HIDES_FAILURE: bool = false;
    // SQLite refuses a COMMIT without a transaction.
    const BEFORE_COMMIT: Option<&'static str> = None;
    const FAILS_HALF_WAY: bool = true;
    const UNDO_BEFORE: &'static [&'static str] = &[];
    // Foreign keys are checked when every row is back.
    const UNDO_INSIDE: &'static [&'static str] = &["PRAGMA defer_foreign_keys = ON"];
    const UNDO_AFTER: &'static [&'static str] = &[];
    const UNDO_SIZE_HINT: &'static str = "";
    const ARGUMENTS_MAX: usize = 32_766;
    // Takes the one writer lock at once: a read transaction that writes later fails if another
    // writer has committed in between.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    // SQLite refuses a ROLLBACK without a transaction. A savepoint begins one.
    const ROLLBACK: &'static str = "SAVEPOINT hf_end; ROLLBACK";

    type ColumnType = SqliteColumn;

    backend_basics!();

    fn whole_numbers(arguments: &SqliteArguments) -> Option<Vec<i128>> {
        arguments::whole_numbers(&format!("{arguments:?}"))
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        begin_by(pool, Some(Self::BEGIN.into_sql_str())).boxed()
    }

    fn begin_on(
        connection: &mut PoolConnection<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'_, Self>, sqlx::Error>> {
        connection.begin_with(Self::BEGIN).boxed()
    }

    fn last_insert_id(_: &Self::QueryResult) -> Option<u64> {
        None
    }

    fn number(row: &SqliteRow, index: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get_unchecked(index)
    }

    fn flag(row: &SqliteRow, index: usize) -> Result<bool, sqlx::Error> {
        row.try_get_unchecked(index)
    }

    fn value(row: &SqliteRow, index: usize, _: &SqliteColumn) -> Result<Value, sqlx::Error> {
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let class = raw.type_info().name().to_owned();
        let decoded = match class.as_str() {
            "INTEGER" => <i64 as Decode<Sqlite>>::decode(raw).map(i128::from).map(Value::Integer),
            "REAL" => <f64 as Decode<Sqlite>>::decode(raw).map(Value::Real),
            "TEXT" => <String as Decode<Sqlite>>::decode(raw).map(Value::Text),
            _ => <Vec<u8> as Decode<Sqlite>>::decode(raw).map(Value::Bytes),
        };
        decoded.map_err(sqlx::Error::Decode)
    }

    fn carry(
        arguments: &mut SqliteArguments,
        row: &SqliteRow,
        index: usize,
        target: &SqliteColumn,
    ) -> Result<Carried, sqlx::Error> {
        // A value has its storage class wherever it comes from, and the column's affinity sees no
        // more.
        let value = Self::value(row, index, target)?;
        let misfit = |misfit: Misfit| sqlx::Error::Decode(misfit.to_string().into());
        Self::bind(arguments, &value, target).map_err(misfit)?;
        Ok(Carried::Exactly)
    }

    fn bind(
        arguments: &mut SqliteArguments,
        value: &Value,
        _: &SqliteColumn,
    ) -> Result<(), Misfit> {
        let misfit = || Misfit::new(value, "any");
        let added = match value {
            Value::Null => sqlx::Arguments::add(arguments, None::<i64>),
            Value::Bool(_) => return Err(misfit()),
            Value::Integer(number) => {
                let number = i64::try_from(*number).map_err(|_| misfit())?;
                sqlx::Arguments::add(arguments, number)
            }
            Value::Real(number) => sqlx::Arguments::add(arguments, *number),
            Value::Text(text) => sqlx::Arguments::add(arguments, text.clone()),
            Value::Bytes(bytes) => sqlx::Arguments::add(arguments, bytes.clone()),
        };
        added.map_err(|_| misfit())
    }

    fn json(_: &SqliteColumn, value: &str) -> Option<String> {
        // NULL for other values, such as text that may be no UTF-8: no log may be NULL. A text of
        // UTF-16 has more bytes than characters.
        Some(format!(
            "CASE typeof({value}) WHEN 'integer' THEN {value} WHEN 'null' THEN 'null' \
             WHEN 'blob' THEN '{{\"hex\":\"' || lower(hex({value})) || '\"}}' \
             WHEN 'text' THEN CASE WHEN {value} NOT GLOB '*[^ -~]*' AND \
             length({value}) = length(CAST({value} AS BLOB)) THEN json_quote({value}) END END"
        ))
    }

    fn concat(texts: &[String]) -> String {
        texts.join(" || ")
    }

    fn utf8(text: &str) -> String {
        format!("CAST({text} AS BLOB)")
    }

    fn is_temporal(_: &SqliteColumn) -> bool {
        false
    }

    fn type_name(_: &SqliteColumn) -> String {
        "any".to_owned()
    }

    fn ends_transaction(error: &sqlx::Error) -> bool {
        // An error of the driver does not show the transaction's state, so it counts as over.
        let Some(error) = error.as_database_error() else { return true };
        let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
        // The low byte is the primary code. Out of memory, interrupted, IO error, corrupt, full:
        // SQLite rolls the whole transaction back.
        matches!(code & 0xff, 7 | 9 | 10 | 11 | 13)
    }

    fn says_rolled_back(_: &(dyn DatabaseError + 'static)) -> bool {
        true
    }

    fn is_schema_mismatch(error: &sqlx::Error) -> bool {
        let message = error.as_database_error().map(|error| error.message().to_owned());
        message.is_some_and(|message| {
            message.contains("no such column")
                || message.contains("has no column named")
                || message.contains("no such table")
                || message.contains("schema has changed")
        })
    }

    fn load_table<'c>(
        connection: &'c mut SqliteConnection,
        name: &'c TableName,
        purpose: Purpose,
    ) -> BoxFuture<'c, Result<Option<LoadedTable<Self>>, sqlx::Error>> {
        catalogue::load_table(connection, name, purpose).boxed()
    }

    fn silence<'c>(
        connection: &'c mut SqliteConnection,
        table: &'c Table,
        _columns: &'c [usize],
    ) -> BoxFuture<'c, Result<Option<Vec<String>>, sqlx::Error>> {
        triggers::silence(connection, table).boxed()
    }

    fn has_client_table<'c>(
        connection: &'c mut SqliteConnection,
        name: &'c str,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        async move {
            sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?)",
            )
            .bind(name)
            .fetch_one(connection)
            .await
        }
        .boxed()
    }

    fn identity(connection: &mut SqliteConnection) -> BoxFuture<'_, Result<Identity, sqlx::Error>> {
        identity(connection).boxed()
    }

    fn key_step(_: &mut SqliteConnection) -> BoxFuture<'_, Result<u64, sqlx::Error>> {
        async { Ok(1) }.boxed()
    }

    fn isolation_level(_: &mut SqliteConnection) -> BoxFuture<'_, Result<String, sqlx::Error>> {
        async { Ok(String::new()) }.boxed()
    }
}

async fn identity(connection: &mut SqliteConnection) -> Result<Identity, sqlx::Error> {
    const QUERY: &str = "SELECT identity, (SELECT file FROM pragma_database_list WHERE name = \
         'main'), (SELECT encoding FROM pragma_encoding) FROM main.handfast_identity";
    let found = rows::<Sqlite>(connection, QUERY.to_owned(), SqliteArguments::default()).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let text = |index| Sqlite::text(row, index).map(Option::unwrap_or_default);
    Ok(Identity {
        resource_id: format!("sqlite:{}", text(0)?),
        label: format!("SQLite {}", text(1)?),
        only_schema: Some("main".to_owned()),
        undo_bytes_max: 64 << 20,
        // The undo log that the database composes is in its own encoding.
        takes_compounds: text(2)? == "UTF-8",
    })
}
