//! Connections, with the few operations that the store needs: statements with values, and their
//! rows.
//!
//! Every call has a time limit. A connection on which a call was cut off is not used again, because
//! the next thing that it sends would be the answer to that call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;

use super::dialect::{CallError, Dialect};
use crate::store::StoreError;

/// A value for a place of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'v> {
    /// A number. Those of databases are signed, so a greater one is stored as their largest.
    Number(u64),
    /// A text.
    Text(&'v str),
    /// Bytes.
    Bytes(&'v [u8]),
}

/// A value of a row.
#[derive(Debug)]
pub(super) enum Cell {
    /// No value.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row of a result, read from its first column on.
#[derive(Debug)]
pub(super) struct Row {
    cells: std::vec::IntoIter<Cell>,
}

impl Row {
    pub(super) fn new(cells: Vec<Cell>) -> Self {
        Self { cells: cells.into_iter() }
    }

    /// Takes the next column, a number that may be negative.
    pub(super) fn signed(&mut self) -> Result<i64, CallError> {
        match self.cells.next() {
            Some(Cell::Number(number)) => Ok(number),
            other => Err(unexpected("a number", &other)),
        }
    }

    /// Takes the next column, a number.
    pub(super) fn number(&mut self) -> Result<u64, CallError> {
        let number = self.signed()?;
        let negative = |_| CallError::Lasting(format!("a number is negative: {number}"));
        u64::try_from(number).map_err(negative)
    }

    /// Takes the next column, a text. MySQL describes one that is compared by its bytes as bytes.
    pub(super) fn text(&mut self) -> Result<String, CallError> {
        match self.cells.next() {
            Some(Cell::Text(text)) => Ok(text),
            Some(Cell::Bytes(bytes)) => {
                String::from_utf8(bytes).map_err(|error| CallError::Lasting(error.to_string()))
            }
            other => Err(unexpected("a text", &other)),
        }
    }

    /// Takes the next column, bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
        match self.cells.next() {
            Some(Cell::Bytes(bytes)) => Ok(bytes),
            other => Err(unexpected("bytes", &other)),
        }
    }
}

/// Names what was found without its content, which may be a row of a user.
fn unexpected(expected: &str, found: &Option<Cell>) -> CallError {
    let found = match found {
        None => "no column",
        Some(Cell::Null) => "NULL",
        Some(Cell::Number(_)) => "a number",
        Some(Cell::Text(_)) => "a text",
        Some(Cell::Bytes(_)) => "bytes",
    };
    CallError::Lasting(format!("a table has other columns: {found} in the place of {expected}"))
}

/// A connection of a driver.
pub(super) trait DriverConnection: Send {
    /// Executes a statement without values, such as `BEGIN`.
    fn run(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), sqlx::Error>>;

    /// Executes a statement that stays prepared, and returns how many rows it found.
    fn execute<'c>(
        &'c mut self,
        sql: &'static str,
        values: &'c [Value<'c>],
    ) -> BoxFuture<'c, Result<u64, sqlx::Error>>;

    /// Executes a statement whose text depends on the number of its values. It stays prepared if
    /// the same number comes often.
    fn execute_many<'c>(
        &'c mut self,
        sql: String,
        values: &'c [Value<'c>],
        is_often: bool,
    ) -> BoxFuture<'c, Result<u64, sqlx::Error>>;

    /// Reads rows.
    fn fetch<'c>(
        &'c mut self,
        sql: &'static str,
        values: &'c [Value<'c>],
    ) -> BoxFuture<'c, Result<Vec<Row>, sqlx::Error>>;
}

/// The database that holds the store.
#[derive(Clone)]
pub(super) struct SqlDatabase {
    /// Its name in messages, without secrets.
    pub(super) name: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) dialect: Arc<dyn Dialect>,
    /// How long a call may take.
    pub(super) call_limit: Duration,
}

impl SqlDatabase {
    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Connection, CallError> {
        let dialect = Arc::clone(&self.dialect);
        let driver = bounded(self.call_limit, &*dialect, dialect.connect()).await?;
        Ok(Connection { driver, dialect, call_limit: self.call_limit })
    }

    /// Returns the namespace as a value.
    pub(super) fn namespace(&self) -> Value<'_> {
        Value::Text(&self.namespace)
    }

    pub(super) fn unusable(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Unusable { store: self.name.to_string(), reason: reason.into() }
    }

    pub(super) fn went_back(&self, reason: String) -> StoreError {
        StoreError::WentBack { store: self.name.to_string(), reason }
    }
}

impl fmt::Debug for SqlDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlDatabase").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An open connection. After an error of a transaction it must be dropped, which ends that.
pub(super) struct Connection {
    driver: Box<dyn DriverConnection>,
    dialect: Arc<dyn Dialect>,
    call_limit: Duration,
}

impl Connection {
    /// Executes a statement without values.
    pub(super) async fn run(&mut self, sql: &'static str) -> Result<(), CallError> {
        bounded(self.call_limit, &*self.dialect, self.driver.run(sql)).await
    }

    /// Executes a statement, and returns how many rows it found.
    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<u64, CallError> {
        bounded(self.call_limit, &*self.dialect, self.driver.execute(sql, values)).await
    }

    /// Executes a statement whose text depends on the number of its values. It stays prepared if
    /// the same number comes often.
    pub(super) async fn execute_many(
        &mut self,
        sql: String,
        values: &[Value<'_>],
        is_often: bool,
    ) -> Result<u64, CallError> {
        let executed = self.driver.execute_many(sql, values, is_often);
        bounded(self.call_limit, &*self.dialect, executed).await
    }

    /// Reads rows.
    pub(super) async fn fetch(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, CallError> {
        bounded(self.call_limit, &*self.dialect, self.driver.fetch(sql, values)).await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

async fn bounded<T>(
    limit: Duration,
    dialect: &dyn Dialect,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, CallError> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| dialect.call_error(&error)),
        Err(_elapsed) => Err(CallError::Unknown(format!("no answer within {limit:?}"))),
    }
}

/// A connection that is opened when a statement needs it, and again after it broke. Each statement
/// is a transaction of its own.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    database: SqlDatabase,
    open: Option<Connection>,
}

impl ConnectionSlot {
    pub(super) fn new(database: SqlDatabase) -> Self {
        Self { database, open: None }
    }

    pub(super) fn database(&self) -> &SqlDatabase {
        &self.database
    }

    /// Takes the connection out, for a transaction. It stays out unless [`ConnectionSlot::keep`]
    /// puts it back, so that a caller that is dropped in between leaves no open transaction.
    pub(super) async fn take(&mut self) -> Result<Connection, CallError> {
        match self.open.take() {
            Some(connection) => Ok(connection),
            None => self.database.connect().await,
        }
    }

    /// Puts a connection back on which no call was cut off and no transaction is open.
    pub(super) fn keep(&mut self, connection: Connection) {
        self.open = Some(connection);
    }

    /// Executes a statement, and returns how many rows it found.
    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<u64, CallError> {
        let mut connection = self.take().await?;
        // The slot is empty meanwhile: a caller that is dropped takes the connection with it, and
        // no later call reads the answer to this one.
        let answer = connection.execute(sql, values).await;
        self.keep_after(connection, &answer);
        answer
    }

    /// Reads rows.
    pub(super) async fn fetch(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, CallError> {
        let mut connection = self.take().await?;
        let answer = connection.fetch(sql, values).await;
        self.keep_after(connection, &answer);
        answer
    }

    fn keep_after<T>(&mut self, connection: Connection, answer: &Result<T, CallError>) {
        match answer {
            Ok(_) | Err(CallError::Duplicate | CallError::Again(_)) => self.keep(connection),
            Err(CallError::Unknown(_) | CallError::Replica(_) | CallError::Lasting(_)) => {}
        }
    }
}

/// Implements [`DriverConnection`]. One impl per database: a generic one would need bounds that no
/// compiler message explains.
macro_rules! driver_connection {
    ($connection:ty, $database:ty, $row:ty) => {
        impl crate::store::sql::connection::DriverConnection for $connection {
            fn run(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), sqlx::Error>> {
                Box::pin(async move { sqlx::raw_sql(sql).execute(self).await.map(drop) })
            }

            fn execute<'c>(
                &'c mut self,
                sql: &'static str,
                values: &'c [Value<'c>],
            ) -> BoxFuture<'c, Result<u64, sqlx::Error>> {
                Box::pin(async move {
                    Ok(bound(sqlx::query(sql), values).execute(self).await?.rows_affected())
                })
            }

            fn execute_many<'c>(
                &'c mut self,
                sql: String,
                values: &'c [Value<'c>],
                is_often: bool,
            ) -> BoxFuture<'c, Result<u64, sqlx::Error>> {
                Box::pin(async move {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).persistent(is_often);
                    Ok(bound(query, values).execute(self).await?.rows_affected())
                })
            }

            fn fetch<'c>(
                &'c mut self,
                sql: &'static str,
                values: &'c [Value<'c>],
            ) -> BoxFuture<'c, Result<Vec<Row>, sqlx::Error>> {
                Box::pin(async move {
                    let rows = bound(sqlx::query(sql), values).fetch_all(self).await?;
                    rows.iter().map(row_of).collect()
                })
            }
        }

        type BoundQuery<'v> =
            sqlx::query::Query<'v, $database, <$database as sqlx::Database>::Arguments>;

        fn bound<'v>(query: BoundQuery<'v>, values: &[Value<'v>]) -> BoundQuery<'v> {
            values.iter().fold(query, |query, value| match *value {
                Value::Number(number) => query.bind(i64::try_from(number).unwrap_or(i64::MAX)),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            })
        }

        fn row_of(row: &$row) -> Result<Row, sqlx::Error> {
            let cells = (0..row.len()).map(|column| cell_of(row, column));
            Ok(Row::new(cells.collect::<Result<_, _>>()?))
        }

        fn cell_of(row: &$row, column: usize) -> Result<Cell, sqlx::Error> {
            let value = row.try_get_raw(column)?;
            if value.is_null() {
                return Ok(Cell::Null);
            }
            match value.type_info().name() {
                "INT8" | "BIGINT" => row.try_get(column).map(Cell::Number),
                "BYTEA" | "VARBINARY" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
                    row.try_get(column).map(Cell::Bytes)
                }
                _ => row.try_get_unchecked(column).map(Cell::Text),
            }
        }
    };
}

pub(super) use driver_connection;
