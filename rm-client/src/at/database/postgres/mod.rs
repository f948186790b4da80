//! PostgreSQL: values by oid, in the binary form of the wire.

mod arguments;
mod catalogue;
mod catalogue_rows;
mod triggers;
mod views;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use handfast_rm_core::plan::{Dialect, Table, TableName};
use sqlx::encode::IsNull;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::pool::PoolConnection;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgDatabaseError, PgListener, PgRow, PgTypeInfo,
};
use sqlx::{Connection, Encode, PgConnection, Pool, Postgres, Row, Transaction, Type, ValueRef};

use super::begin::begin;
use super::bound_query::BoundQuery;
use super::value::{Misfit, Value, narrow};
use super::{Backend, Identity, LoadedTable, Purpose, Steps, backend_basics, rows};
use crate::at::error::AtError;
use crate::outbox::CHANNEL;

/// A column's type: valid only in the database that it came from, which also holds the undo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgColumn {
    oid: u32,
    /// A multirange, or an array of them: the driver fails on a statement that returns one.
    is_unread: bool,
}

const BOOL: u32 = 16;
const NAME: u32 = 19;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
/// Types whose values the undo log has in binary form, each with the function that makes it.
const SENT: [(u32, &str); 6] = [
    (1082, "date_send"),
    (1083, "time_send"),
    (1114, "timestamp_send"),
    (1184, "timestamptz_send"),
    (1700, "numeric_send"),
    (2950, "uuid_send"),
];

impl Backend for Postgres {
    const DIALECT: Dialect = Dialect::Postgres;
    const FOLDER: &'static str = "postgres";
    const MIGRATIONS: handfast_migrations::Database = handfast_migrations::Database::Postgres;
    const WAITS_WITH_LOCKS: bool = true;
    const COMPOSES_ALONE: bool = false;
    const COMMIT_HIDES_FAILURE: bool = true;
    // PostgreSQL refuses every statement of a failed transaction but its end.
    const BEFORE_COMMIT: Option<&'static str> = Some("SELECT 1");
    const FAILS_HALF_WAY: bool = false;
    const UNDO_BEFORE: &'static [&'static str] = &[];
    // Deferrable foreign keys are checked when every row is back.
    const UNDO_INSIDE: &'static [&'static str] =
        &["SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET CONSTRAINTS ALL DEFERRED"];
    const UNDO_AFTER: &'static [&'static str] = &[];
    const UNDO_SIZE_HINT: &'static str = "";
    const ARGUMENTS_MAX: usize = 65_535;

    type ColumnType = PgColumn;

    backend_basics!();

    fn whole_numbers(arguments: &PgArguments) -> Option<Vec<i128>> {
        arguments::whole_numbers(&format!("{arguments:?}"))
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        begin(pool).boxed()
    }

    fn begin_on(
        connection: &mut PoolConnection<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'_, Self>, sqlx::Error>> {
        connection.begin().boxed()
    }

    fn last_insert_id(_: &Self::QueryResult) -> Option<u64> {
        None
    }

    fn number(row: &PgRow, index: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get(index)
    }

    fn flag(row: &PgRow, index: usize) -> Result<bool, sqlx::Error> {
        row.try_get(index)
    }

    fn value(row: &PgRow, index: usize, column: &PgColumn) -> Result<Value, sqlx::Error> {
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(neutral(column.oid, raw.as_bytes().map_err(sqlx::Error::Decode)?))
    }

    fn bind(arguments: &mut PgArguments, value: &Value, column: &PgColumn) -> Result<(), Misfit> {
        let bytes =
            wire(column.oid, value).ok_or_else(|| Misfit::new(value, Self::type_name(column)))?;
        sqlx::Arguments::add(arguments, Wire { oid: column.oid, bytes })
            .expect("bytes that came from the database go back as they are");
        Ok(())
    }

    fn is_unread(column: &PgColumn) -> bool {
        column.is_unread
    }

    fn is_temporal(_: &PgColumn) -> bool {
        false
    }

    fn type_name(column: &PgColumn) -> String {
        format!("oid {}", column.oid)
    }

    fn ends_transaction(error: &sqlx::Error) -> bool {
        // The server itself refuses everything after a failed statement, until a savepoint is
        // rolled back to; so only a broken connection counts.
        error.as_database_error().is_none()
    }

    fn says_rolled_back(error: &(dyn DatabaseError + 'static)) -> bool {
        let code = error.code().unwrap_or_default();
        // Connections, resources, operators and the system; statement_completion_unknown.
        let in_doubt = ["08", "53", "57", "58", "XX", "40003"];
        !code.is_empty() && !in_doubt.iter().any(|class| code.starts_with(class))
    }

    fn is_schema_mismatch(error: &sqlx::Error) -> bool {
        let Some(error) = of_server(error) else { return false };
        // undefined_column, undefined_table, and "cached plan must not change result type", one of
        // many things that are not supported.
        match error.code() {
            "42703" | "42P01" => true,
            "0A000" => error.routine() == Some("RevalidateCachedQuery"),
            _ => false,
        }
    }

    fn refuses_row_locks(error: &sqlx::Error) -> bool {
        of_server(error).is_some_and(|error| error.routine() == Some("CheckSelectLocking"))
    }

    fn load_table<'c>(
        connection: &'c mut PgConnection,
        name: &'c TableName,
        purpose: Purpose,
    ) -> BoxFuture<'c, Result<Option<LoadedTable<Self>>, sqlx::Error>> {
        catalogue::load_table(connection, name, purpose).boxed()
    }

    fn silence<'c>(
        connection: &'c mut PgConnection,
        table: &'c Table,
        columns: &'c [usize],
    ) -> BoxFuture<'c, Result<Option<Vec<String>>, sqlx::Error>> {
        triggers::silence(connection, table, columns).boxed()
    }

    fn judges_no_value<'c>(
        connection: &'c mut PgConnection,
        table: &'c Table,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        catalogue::has_no_check(connection, table).boxed()
    }

    fn json(column: &PgColumn, value: &str) -> Option<String> {
        let text = match column.oid {
            INT2 | INT4 | INT8 | BOOL => format!("{value}::text"),
            TEXT | VARCHAR | NAME => format!("to_json({value}::text)::text"),
            oid => {
                let (_, send) = SENT.iter().find(|(sent, _)| *sent == oid)?;
                format!("'{{\"hex\":\"' || encode({send}({value}), 'hex') || '\"}}'")
            }
        };
        Some(format!("coalesce({text}, 'null')"))
    }

    fn has_type(column: &PgColumn, name: &str) -> Option<String> {
        Some(format!("pg_typeof({name}) = {}::regtype", column.oid))
    }

    fn utf8(text: &str) -> String {
        format!("convert_to({text}, 'UTF8')")
    }

    fn has_client_table<'c>(
        connection: &'c mut PgConnection,
        name: &'c str,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        async move {
            sqlx::query_scalar("SELECT to_regclass(quote_ident($1)) IS NOT NULL")
                .bind(name)
                .fetch_one(connection)
                .await
        }
        .boxed()
    }

    fn identity(connection: &mut PgConnection) -> BoxFuture<'_, Result<Identity, sqlx::Error>> {
        identity(connection).boxed()
    }

    fn key_step(_: &mut PgConnection) -> BoxFuture<'_, Result<u64, sqlx::Error>> {
        async { Ok(1) }.boxed()
    }

    fn doorbell(
        pool: &Pool<Self>,
    ) -> BoxFuture<'_, Result<Option<BoxStream<'static, ()>>, sqlx::Error>> {
        async {
            let mut listener = PgListener::connect_with(pool).await?;
            listener.listen(CHANNEL).await?;
            let rings = stream::unfold(listener, |mut listener| async {
                // The listener reconnects by itself; an error here means that it could not.
                listener.recv().await.ok().map(|_| ((), listener))
            });
            Ok(Some(rings.boxed()))
        }
        .boxed()
    }

    fn isolation_level(_: &mut PgConnection) -> BoxFuture<'_, Result<String, sqlx::Error>> {
        async { Ok(String::new()) }.boxed()
    }
}

/// The schema belongs to the identity, because that is where `undo_log` is found.
async fn identity(connection: &mut PgConnection) -> Result<Identity, sqlx::Error> {
    const QUERY: &str = "SELECT (SELECT system_identifier::text FROM pg_control_system()), \
         current_database()::text, current_schema()::text, \
         current_setting('standard_conforming_strings')";
    let found = rows::<Postgres>(connection, QUERY.to_owned(), PgArguments::default()).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let text = |index| Postgres::text(row, index).map(Option::unwrap_or_default);
    let (system, database, schema) = (text(0)?, text(1)?, text(2)?);
    if text(3)? != "on" {
        let setting = "standard_conforming_strings off";
        return Err(AtError::SessionSetting { setting }.into());
    }
    Ok(Identity {
        resource_id: format!("postgres:{system}/{database}/{schema}"),
        label: format!("PostgreSQL database {database}, schema {schema}"),
        only_schema: None,
        undo_bytes_max: 64 << 20,
        takes_compounds: false,
    })
}

/// The neutral form of a value in binary form.
fn neutral(oid: u32, bytes: &[u8]) -> Value {
    let opaque = || Value::Bytes(bytes.to_owned());
    match oid {
        BOOL => bytes.first().map_or_else(opaque, |byte| Value::Bool(*byte != 0)),
        INT2 | INT4 | INT8 => big_endian(bytes).map_or_else(opaque, Value::Integer),
        FLOAT4 => bytes.try_into().map_or_else(
            |_| opaque(),
            |four| finite(f64::from(f32::from_be_bytes(four))).unwrap_or_else(opaque),
        ),
        FLOAT8 => bytes.try_into().map_or_else(
            |_| opaque(),
            |eight| finite(f64::from_be_bytes(eight)).unwrap_or_else(opaque),
        ),
        TEXT | VARCHAR | BPCHAR | NAME => Value::text(bytes),
        _ => opaque(),
    }
}

/// Returns the server's own error, if it is one.
fn of_server(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// NaN has many bit patterns and infinity no JSON number: both stay bytes.
fn finite(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::Real(value))
}

fn big_endian(bytes: &[u8]) -> Option<i128> {
    match bytes.len() {
        2 => bytes.try_into().ok().map(|bytes| i128::from(i16::from_be_bytes(bytes))),
        4 => bytes.try_into().ok().map(|bytes| i128::from(i32::from_be_bytes(bytes))),
        8 => bytes.try_into().ok().map(|bytes| i128::from(i64::from_be_bytes(bytes))),
        _ => None,
    }
}

/// The binary form of a value: `Some(None)` for NULL, `None` if the value does not fit the type.
fn wire(oid: u32, value: &Value) -> Option<Option<Vec<u8>>> {
    let bytes = match (oid, value) {
        (_, Value::Null) => return Some(None),
        (_, Value::Bytes(bytes)) => bytes.clone(),
        (BOOL, Value::Bool(value)) => vec![u8::from(*value)],
        (INT2, Value::Integer(value)) => i16::try_from(*value).ok()?.to_be_bytes().to_vec(),
        (INT4, Value::Integer(value)) => i32::try_from(*value).ok()?.to_be_bytes().to_vec(),
        (INT8, Value::Integer(value)) => i64::try_from(*value).ok()?.to_be_bytes().to_vec(),
        (FLOAT4, Value::Real(value)) => narrow(*value)?.to_be_bytes().to_vec(),
        (FLOAT8, Value::Real(value)) => value.to_be_bytes().to_vec(),
        (TEXT | VARCHAR | BPCHAR | NAME, Value::Text(text)) => text.clone().into_bytes(),
        (_, Value::Bool(_) | Value::Integer(_) | Value::Real(_) | Value::Text(_)) => return None,
    };
    Some(Some(bytes))
}

/// A value in binary form on its way back.
struct Wire {
    oid: u32,
    bytes: Option<Vec<u8>>,
}

impl Type<Postgres> for Wire {
    fn type_info() -> PgTypeInfo {
        // Never sent: `produces` says what each value is.
        PgTypeInfo::with_name("unknown")
    }
}

impl Encode<'_, Postgres> for Wire {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        buffer.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.oid)))
    }
}
