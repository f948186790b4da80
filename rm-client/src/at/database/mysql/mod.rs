//! MySQL and MariaDB: values in the binary form of the wire, by the column's declared type.

mod arguments;
mod carried;
mod catalogue;
mod catalogue_rows;
mod referrers;

use std::borrow::Cow;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_rm_core::plan::{Dialect, Table, TableName};
use sqlx::encode::IsNull;
use sqlx::error::{BoxDynError, DatabaseError, UnexpectedNullError};
use sqlx::mysql::{MySqlArguments, MySqlRow, MySqlTypeInfo};
use sqlx::pool::PoolConnection;
use sqlx::{
    ConnectOptions, Connection, Decode, Encode, MySql, MySqlConnection, Pool, Row, SqlSafeStr,
    Transaction, Type, TypeInfo,
};

use super::begin::{begin, begin_by};
use super::bound_query::BoundQuery;
use super::value::{Misfit, Value, narrow};
use super::{Backend, Carried, Identity, LoadedTable, Purpose, Steps, backend_basics, rows};
use crate::at::error::AtError;

/// Begins a local transaction that may end unseen. A deadlock rolls all of it back, and so does a
/// lock wait timeout on some servers; some statements, such as CREATE TABLE, commit it. Statements
/// after that commit one by one, and a COMMIT without a transaction succeeds. The savepoint
/// disappears with the transaction, whichever way it ends. Both statements are sent as one text,
/// which costs one round trip.
const BEGIN_MARKED: &str = "BEGIN; SAVEPOINT handfast_mark";

/// How the values of a column look on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A whole number of so many bytes.
    Integer { bytes: usize, unsigned: bool },
    /// Four bytes.
    Float,
    /// Eight bytes.
    Double,
    /// Text with its length before it.
    Text,
    /// Bytes with their length before them.
    Bytes,
    /// Bits, sent as bytes with the greatest first; taken back, and compared, as a number only.
    Bits,
    /// Date or time, which bring their own length.
    Temporal,
}

/// A column's type.
#[derive(Clone, Debug)]
pub struct MySqlColumn {
    form: Form,
    /// The declared type, such as `int(11) unsigned`.
    type_text: String,
    /// The driver's name of the type.
    bind_as: MySqlTypeInfo,
}

impl Backend for MySql {
    const DIALECT: Dialect = Dialect::MySql;
    const FOLDER: &'static str = "mysql";
    const MIGRATIONS: handfast_migrations::Database = handfast_migrations::Database::MySql;
    const WAITS_WITH_LOCKS: bool = true;
    const COMMIT_HIDES_FAILURE: bool = false;
    const BEFORE_COMMIT: Option<&'static str> = Some("RELEASE SAVEPOINT handfast_mark");
    const FAILS_HALF_WAY: bool = false;
    // READ COMMITTED, so that the locking reads of an undo hold no gaps. The mode lets every value
    // go back that was there: 0 in an AUTO_INCREMENT column, zero dates.
    const UNDO_BEFORE: &'static [&'static str] = &[
        "SET @handfast_sql_mode = @@SESSION.sql_mode, @handfast_time_zone = @@SESSION.time_zone",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'",
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    ];
    const UNDO_INSIDE: &'static [&'static str] = &[];
    const UNDO_AFTER: &'static [&'static str] =
        &["SET SESSION sql_mode = @handfast_sql_mode, SESSION time_zone = @handfast_time_zone"];
    const UNDO_SIZE_HINT: &'static str = ", or raise max_allowed_packet";
    const ARGUMENTS_MAX: usize = 65_535;
    // MariaDB opens every table of its server to answer that.
    const REFERRERS_ARE_EXPENSIVE: bool = true;
    // Without strict mode an ENUM stores '' for a value that it does not list. Only a session that
    // is not strict can write that '' again.
    const UNDO_LENIENT: Option<[&'static str; 2]> = Some([
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'",
    ]);

    // A read that is sent counts nothing.
    const COUNTS_ONE: &'static str = "SELECT 1 INTO @handfast_one";

    type ColumnType = MySqlColumn;

    backend_basics!();

    fn whole_numbers(arguments: &MySqlArguments) -> Option<Vec<i128>> {
        arguments::whole_numbers(&format!("{arguments:?}"))
    }

    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        begin(pool).boxed()
    }

    fn begin_marked(
        pool: &Pool<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        begin_by(pool, Some(BEGIN_MARKED.into_sql_str())).boxed()
    }

    fn begin_on(
        connection: &mut PoolConnection<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'_, Self>, sqlx::Error>> {
        connection.begin().boxed()
    }

    /// The server does not answer when a statement is closed. The driver lets TCP hold back the
    /// call behind it until the server's acknowledgement, which the server delays.
    fn kept_prepared_max(pool: &Pool<Self>) -> Option<usize> {
        let url = pool.connect_options().to_url_lossy();
        let option = |name: &str| {
            let mut pairs = url.query_pairs();
            pairs.find_map(|(found, value)| (found == name).then(|| value.into_owned()))
        };
        let over_tcp = option("socket").is_none();
        option("statement-cache-capacity")?.parse().ok().filter(|_| over_tcp)
    }

    fn kept_prepared(connection: &MySqlConnection) -> usize {
        connection.cached_statements_size()
    }

    fn last_insert_id(result: &Self::QueryResult) -> Option<u64> {
        Some(result.last_insert_id())
    }

    fn number(row: &MySqlRow, index: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get_unchecked(index)
    }

    fn flag(row: &MySqlRow, index: usize) -> Result<bool, sqlx::Error> {
        Ok(row.try_get_unchecked::<i64, _>(index)? != 0)
    }

    fn value(row: &MySqlRow, index: usize, column: &MySqlColumn) -> Result<Value, sqlx::Error> {
        // `is_null` takes zero dates for NULL, so ask for the bytes.
        match <&[u8] as Decode<MySql>>::decode(row.try_get_raw(index)?) {
            Ok(bytes) => Ok(neutral(column.form, bytes)),
            Err(error) if error.is::<UnexpectedNullError>() => Ok(Value::Null),
            Err(error) => Err(sqlx::Error::Decode(error)),
        }
    }

    fn bind(
        arguments: &mut MySqlArguments,
        value: &Value,
        column: &MySqlColumn,
    ) -> Result<(), Misfit> {
        let bytes =
            wire(column.form, value).ok_or_else(|| Misfit::new(value, &column.type_text))?;
        sqlx::Arguments::add(arguments, Wire { column, bytes })
            .expect("bytes that came from the database go back as they are");
        Ok(())
    }

    fn carry(
        arguments: &mut MySqlArguments,
        row: &MySqlRow,
        index: usize,
        target: &MySqlColumn,
    ) -> Result<Carried, sqlx::Error> {
        carried::carry(arguments, row, index, target)
    }

    fn is_at_fixed_offset(
        connection: &mut MySqlConnection,
    ) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        async move {
            let zone: String =
                sqlx::query_scalar("SELECT @@SESSION.time_zone").fetch_one(connection).await?;
            Ok(zone.starts_with(['+', '-']) || zone.eq_ignore_ascii_case("UTC"))
        }
        .boxed()
    }

    fn is_temporal(column: &MySqlColumn) -> bool {
        column.form == Form::Temporal
    }

    fn json(column: &MySqlColumn, value: &str) -> Option<String> {
        let declared = column.type_text.to_ascii_lowercase();
        if declared.contains("zerofill") {
            return None;
        }
        // Not the texts that are longer than a packet, or a variable, may be.
        let text = match declared.split(['(', ' ']).next().unwrap_or_default() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => value.to_owned(),
            "char" | "varchar" | "tinytext" | "text" | "enum" | "set" | "decimal" => {
                format!("JSON_QUOTE(CONVERT({value} USING utf8mb4))")
            }
            _ => return None,
        };
        // A text that comes out as NULL, for its length, makes the whole log NULL: that is refused.
        Some(format!("IF({value} IS NULL, 'null', {text})"))
    }

    fn type_name(column: &MySqlColumn) -> String {
        column.type_text.clone()
    }

    fn ends_transaction(error: &sqlx::Error) -> bool {
        // An error of the driver may be a lost connection, with which the server rolls back.
        let Some(error) = error.as_database_error() else { return true };
        let number = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
        // A deadlock, a full lock table and a snapshot that is too old roll the whole transaction
        // back; a lock wait timeout may.
        number.is_some_and(|error| matches!(error.number(), 1020 | 1205 | 1206 | 1213))
    }

    fn says_rolled_back(error: &(dyn DatabaseError + 'static)) -> bool {
        // Constraints, and deadlocks with other members of a cluster.
        let is_told = |code: Cow<'_, str>| ["23", "40"].iter().any(|class| code.starts_with(class));
        let number = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
        error.code().is_some_and(is_told)
            || number.is_some_and(|error| matches!(error.number(), 1020 | 1205 | 1206))
    }

    fn is_mark_lost(error: &sqlx::Error) -> bool {
        let Some(error) = error.as_database_error() else { return false };
        let number = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
        // There is no such savepoint.
        number.is_some_and(|error| error.number() == 1305)
    }

    fn is_schema_mismatch(error: &sqlx::Error) -> bool {
        let Some(error) = error.as_database_error() else { return false };
        let number = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
        // Unknown column; column count does not match; no such table; table definition has changed.
        number.is_some_and(|error| matches!(error.number(), 1054 | 1136 | 1146 | 1412))
    }

    fn load_table<'c>(
        connection: &'c mut MySqlConnection,
        name: &'c TableName,
        purpose: Purpose,
    ) -> BoxFuture<'c, Result<Option<LoadedTable<Self>>, sqlx::Error>> {
        catalogue::load_table(connection, name, purpose).boxed()
    }

    fn judges_no_value<'c>(
        connection: &'c mut MySqlConnection,
        table: &'c Table,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        catalogue::has_no_check(connection, table).boxed()
    }

    fn has_client_table<'c>(
        connection: &'c mut MySqlConnection,
        name: &'c str,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        async move {
            let found: Option<i64> = sqlx::query_scalar(
                "SELECT 1 FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_name = ?",
            )
            .bind(name)
            .fetch_optional(connection)
            .await?;
            Ok(found.is_some())
        }
        .boxed()
    }

    fn identity(connection: &mut MySqlConnection) -> BoxFuture<'_, Result<Identity, sqlx::Error>> {
        identity(connection).boxed()
    }

    fn key_step(connection: &mut MySqlConnection) -> BoxFuture<'_, Result<u64, sqlx::Error>> {
        async move {
            let query = "SELECT CAST(@@SESSION.auto_increment_increment AS SIGNED)";
            let found = rows::<MySql>(connection, query.to_owned(), MySqlArguments::default());
            let step = found.await?.first().map(|row| MySql::number(row, 0)).transpose()?;
            Ok(step.flatten().and_then(|step| u64::try_from(step).ok()).unwrap_or(1))
        }
        .boxed()
    }

    fn isolation_level(
        connection: &mut MySqlConnection,
    ) -> BoxFuture<'_, Result<String, sqlx::Error>> {
        async move {
            // One of `tx_isolation` and `transaction_isolation` is there, depending on the product.
            let query = "SHOW SESSION VARIABLES WHERE Variable_name IN \
                         ('tx_isolation', 'transaction_isolation')";
            let found = rows::<MySql>(connection, query.to_owned(), MySqlArguments::default());
            let found = found.await?;
            let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
            Ok(MySql::text(row, 1)?.unwrap_or_default())
        }
        .boxed()
    }
}

/// The identity row goes with the data, also to a replica that takes over; a server's uuid does
/// not.
async fn identity(connection: &mut MySqlConnection) -> Result<Identity, sqlx::Error> {
    const QUERY: &str = "SELECT identity, DATABASE(), CAST(@@max_allowed_packet AS SIGNED), \
         VERSION(), @@SESSION.sql_mode FROM handfast_identity";
    const MISREAD: [&str; 2] = ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"];
    let found = rows::<MySql>(connection, QUERY.to_owned(), MySqlArguments::default()).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let text = |index| MySql::text(row, index).map(Option::unwrap_or_default);
    let (identity, database, version, modes) = (text(0)?, text(1)?, text(3)?, text(4)?);
    if let Some(setting) = MISREAD.into_iter().find(|mode| modes.contains(mode)) {
        return Err(AtError::SessionSetting { setting }.into());
    }
    let packet = MySql::number(row, 2)?.and_then(|bytes| usize::try_from(bytes).ok());
    let is_mariadb = version.contains("MariaDB");
    let product = if is_mariadb { "MariaDB" } else { "MySQL" };
    Ok(Identity {
        resource_id: format!("mysql:{identity}/{database}"),
        label: format!("{product} database {database}"),
        only_schema: Some(database),
        // Room for the rest of the INSERT beside the undo log.
        undo_bytes_max: packet.unwrap_or(1 << 20).saturating_sub(4_096).min(64 << 20),
        takes_compounds: is_mariadb,
    })
}

/// The neutral form of a value in binary form.
fn neutral(form: Form, bytes: &[u8]) -> Value {
    let opaque = || Value::Bytes(bytes.to_owned());
    match form {
        Form::Integer { unsigned, .. } => integer(bytes, unsigned),
        Form::Float => bytes
            .try_into()
            .map_or_else(|_| opaque(), |four| Value::Real(f64::from(f32::from_le_bytes(four)))),
        Form::Double => bytes
            .try_into()
            .map_or_else(|_| opaque(), |eight| Value::Real(f64::from_le_bytes(eight))),
        Form::Text => Value::text(bytes),
        Form::Bits => {
            Value::Integer(bytes.iter().fold(0, |bits, byte| bits << 8 | i128::from(*byte)))
        }
        Form::Bytes | Form::Temporal => opaque(),
    }
}

/// A little-endian number of at most eight bytes.
fn integer(bytes: &[u8], unsigned: bool) -> Value {
    let negative = !unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    Value::Integer(i128::from_le_bytes(wide))
}

/// The binary form of a value: `Some(None)` for NULL, `None` if the value does not fit the type.
fn wire(form: Form, value: &Value) -> Option<Option<Vec<u8>>> {
    let bytes = match (form, value) {
        (_, Value::Null) => return Some(None),
        (Form::Integer { bytes, unsigned }, Value::Integer(number)) => {
            let wide = number.to_le_bytes();
            let narrow = wide.get(..bytes)?.to_vec();
            if integer(&narrow, unsigned) != *value {
                return None;
            }
            narrow
        }
        (Form::Float, Value::Real(number)) => narrow(*number)?.to_le_bytes().to_vec(),
        (Form::Double, Value::Real(number)) => number.to_le_bytes().to_vec(),
        (Form::Bits, Value::Integer(number)) => u64::try_from(*number).ok()?.to_le_bytes().to_vec(),
        (Form::Text, Value::Text(text)) => text.clone().into_bytes(),
        (Form::Text | Form::Bytes | Form::Temporal, Value::Bytes(bytes)) => bytes.clone(),
        (
            Form::Integer { .. }
            | Form::Float
            | Form::Double
            | Form::Text
            | Form::Bytes
            | Form::Bits
            | Form::Temporal,
            Value::Bool(_) | Value::Integer(_) | Value::Real(_) | Value::Text(_) | Value::Bytes(_),
        ) => return None,
    };
    Some(Some(bytes))
}

/// A value in binary form on its way back.
struct Wire<'c> {
    column: &'c MySqlColumn,
    bytes: Option<Vec<u8>>,
}

impl Type<MySql> for Wire<'_> {
    fn type_info() -> MySqlTypeInfo {
        <str as Type<MySql>>::type_info()
    }
}

impl Encode<'_, MySql> for Wire<'_> {
    fn encode_by_ref(&self, buffer: &mut Vec<u8>) -> Result<IsNull, BoxDynError> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        match self.column.form {
            Form::Integer { .. } | Form::Float | Form::Double | Form::Bits | Form::Temporal => {
                buffer.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            // The driver writes the length before these.
            Form::Text | Form::Bytes => <&[u8] as Encode<MySql>>::encode(bytes.as_slice(), buffer),
        }
    }

    fn produces(&self) -> Option<MySqlTypeInfo> {
        let column = self.column;
        Some(match column.form {
            // A parameter of type MEDIUMINT or YEAR is read as NULL by MariaDB and shifts all later
            // ones; these types have the same bytes.
            Form::Integer { bytes, unsigned } => integer_type(bytes, unsigned),
            Form::Bits => <u64 as Type<MySql>>::type_info(),
            Form::Float => <f32 as Type<MySql>>::type_info(),
            Form::Double => <f64 as Type<MySql>>::type_info(),
            // Compared as a number only if sent as one: a text would be compared by its double.
            Form::Text if column.bind_as.name() == "DECIMAL" => column.bind_as.clone(),
            Form::Text => <str as Type<MySql>>::type_info(),
            Form::Bytes => <[u8] as Type<MySql>>::type_info(),
            Form::Temporal => column.bind_as.clone(),
        })
    }
}

fn integer_type(bytes: usize, unsigned: bool) -> MySqlTypeInfo {
    match (bytes, unsigned) {
        (1, false) => <i8 as Type<MySql>>::type_info(),
        (1, true) => <u8 as Type<MySql>>::type_info(),
        (2, false) => <i16 as Type<MySql>>::type_info(),
        (2, true) => <u16 as Type<MySql>>::type_info(),
        (4, false) => <i32 as Type<MySql>>::type_info(),
        (4, true) => <u32 as Type<MySql>>::type_info(),
        (_, false) => <i64 as Type<MySql>>::type_info(),
        (_, true) => <u64 as Type<MySql>>::type_info(),
    }
}
