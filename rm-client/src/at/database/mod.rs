//! The part of AT mode that differs between databases, beyond what sqlx offers for all of them.
//!
//! The traits are sealed: [`AtDatabase`] is the bound that users see, [`Backend`] is what the three
//! databases implement. Bounds such as `for<'x> &'x mut DB::Connection: Executor<'x>` appear in no
//! trait or impl here, because they break type inference in code that merely links this crate; the
//! driver's methods are reached through `Backend` instead.

pub(crate) mod begin;
pub(crate) mod bind;
pub(crate) mod bound_query;
pub(crate) mod catalogue;
pub(crate) mod commit;
pub(crate) mod error_class;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod shown;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod value;

use std::fmt::Debug;
use std::time::Duration;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use handfast_proto::v1;
use handfast_rm_core::plan::{Dialect, Table, TableName};
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool, Transaction};

use bound_query::BoundQuery;
use value::{Misfit, Value};

/// A database that can take part in global transactions: `sqlx::Postgres`, `sqlx::MySql` or
/// `sqlx::Sqlite`.
pub trait AtDatabase: Backend {}

impl<DB: Backend> AtDatabase for DB {}

/// The answers to a statement, in order: counts and rows.
pub(crate) type Steps<DB> = Vec<Either<<DB as Database>::QueryResult, <DB as Database>::Row>>;

/// A table as the catalogue describes it, with the types that its values are bound by.
#[derive(Clone, Debug)]
pub struct LoadedTable<DB: Backend> {
    /// The description for the planner.
    pub(crate) table: Table,
    /// One for each column.
    pub(crate) types: Vec<DB::ColumnType>,
    /// Its name in lock keys. Rows of a PostgreSQL partition are those of the whole, by whichever
    /// name they are written.
    pub(crate) lock_name: String,
    /// Whether a change may fire a trigger of a guard, on this table or on rows that go along.
    pub(crate) is_guarded: bool,
    /// Whether several changes of counters may be carried out as one of their sum.
    pub(crate) takes_sums: bool,
}

/// The purpose of a table's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Planning a statement, which must know every table that refers to this one.
    Planning,
    /// Putting rows back. Where [`Backend::REFERRERS_ARE_EXPENSIVE`] is set, the description lists
    /// only the table's references to itself.
    Restoring,
}

/// The identity of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The resource id: the database's own identity, database and schema, never its URL.
    pub(crate) resource_id: String,
    /// To be shown.
    pub(crate) label: String,
    /// The only schema whose tables may be written, where another one is another resource.
    pub(crate) only_schema: Option<String>,
    /// The largest undo log that one INSERT can carry, in bytes.
    pub(crate) undo_bytes_max: usize,
    /// Whether several statements can go out in one call.
    pub(crate) takes_compounds: bool,
}

impl Identity {
    /// Returns the resource of a mode, as the coordinator registers it.
    pub(crate) fn resource(&self, mode: v1::Mode) -> v1::Resource {
        let (id, label) = (self.resource_id.clone(), self.label.clone());
        v1::Resource { id, mode: mode.into(), label }
    }
}

/// How a value of an answer came to the arguments of an INSERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The column stores it as it would store the answer itself.
    Exactly,
    /// The same, if the session's time zone has one offset only.
    AtFixedOffset,
    /// It was not bound: it might be stored as another value.
    No,
    /// An empty geometry of MySQL, which cannot be written.
    EmptyGeometry,
}

/// One database product. Implemented for the three that Handfast knows.
pub trait Backend: Database<Arguments: Clone + Sync, QueryResult: Debug> {
    /// How its SQL is written.
    const DIALECT: Dialect;
    /// The folder of its migrations.
    const FOLDER: &'static str;
    /// The migrations of its client tables.
    const MIGRATIONS: handfast_migrations::Database;
    /// Whether a branch may wait in the coordinator while it holds database locks. It may not where
    /// all writers would wait behind it.
    const WAITS_WITH_LOCKS: bool;
    /// Whether COMMIT of a failed transaction is answered like a commit.
    const COMMIT_HIDES_FAILURE: bool;
    /// Whether the database composes the undo row of a last branch that runs alone. It does not
    /// where the undo row can go by itself while the coordinator is asked.
    const COMPOSES_ALONE: bool = true;
    /// Sent before COMMIT of a local transaction of [`Backend::begin_marked`]. It fails where
    /// COMMIT would succeed without committing all of it.
    const BEFORE_COMMIT: Option<&'static str>;
    /// Whether a statement that fails may leave part of its changes. SQLite undoes a failed
    /// statement only for the failures that it expects, which a value of the wrong type in a STRICT
    /// table and an error of a function are not.
    const FAILS_HALF_WAY: bool;
    /// Sent on the connection before a rollback's local transaction begins.
    const UNDO_BEFORE: &'static [&'static str];
    /// Sent as the first statements of a rollback's local transaction.
    const UNDO_INSIDE: &'static [&'static str];
    /// Sent on the connection after a rollback's local transaction.
    const UNDO_AFTER: &'static [&'static str];
    /// Another remedy for an undo log that is too large; begins with `, `.
    const UNDO_SIZE_HINT: &'static str;
    /// The largest number of arguments of one statement.
    const ARGUMENTS_MAX: usize;
    /// Whether looking up the tables that refer to one takes longer, the more tables the server
    /// has.
    const REFERRERS_ARE_EXPENSIVE: bool = false;
    /// The statement that lets the session write every value that its column can hold, also one
    /// that no strict session could have written, and the one that makes it strict again.
    const UNDO_LENIENT: Option<[&'static str; 2]> = None;

    /// Begins a local transaction that will write, where the driver does not.
    const BEGIN: &'static str = "START TRANSACTION";
    /// Rolls back what is open, and succeeds where nothing is.
    const ROLLBACK: &'static str = "ROLLBACK";

    /// A statement that changes nothing, and whose answer counts one row.
    const COUNTS_ONE: &'static str = "SELECT 1";

    /// The type that binds a value of a column again.
    type ColumnType: Clone + Debug + Send + Sync;

    /// Runs a query to its end and returns everything it answered.
    fn steps(
        connection: &mut Self::Connection,
        query: BoundQuery<Self>,
    ) -> BoxFuture<'_, Result<Steps<Self>, sqlx::Error>>;

    /// The arguments of a query, if all of them are whole numbers.
    fn whole_numbers(arguments: &Self::Arguments) -> Option<Vec<i128>>;

    /// Begins a local transaction that will write. SQLite takes its writer lock here.
    fn begin(pool: &Pool<Self>) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>>;

    /// As [`Backend::begin`], for statements that the library does not see. Where a failed
    /// statement may end the local transaction and a later COMMIT would not report it, sets a mark
    /// that disappears with the transaction.
    fn begin_marked(
        pool: &Pool<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'static, Self>, sqlx::Error>> {
        Self::begin(pool)
    }

    /// As [`Backend::begin`], on a connection taken before.
    fn begin_on(
        connection: &mut PoolConnection<Self>,
    ) -> BoxFuture<'_, Result<Transaction<'_, Self>, sqlx::Error>>;

    /// How many statements a connection keeps prepared, if a call waits when one more makes it
    /// close another.
    fn kept_prepared_max(_pool: &Pool<Self>) -> Option<usize> {
        None
    }

    /// How many statements a connection keeps prepared, where [`Backend::kept_prepared_max`] is
    /// known.
    fn kept_prepared(_connection: &Self::Connection) -> usize {
        0
    }

    /// Rows changed, as the database counts them.
    fn rows_affected(result: &Self::QueryResult) -> u64;

    /// The first generated key, where the database reports it.
    fn last_insert_id(result: &Self::QueryResult) -> Option<u64>;

    /// How many columns a row has.
    fn width(row: &Self::Row) -> usize;

    /// The value of a column.
    ///
    /// # Errors
    /// If the value cannot be kept exactly.
    fn value(
        row: &Self::Row,
        index: usize,
        column: &Self::ColumnType,
    ) -> Result<Value, sqlx::Error>;

    /// A column that is text or NULL.
    ///
    /// # Errors
    /// If it is neither.
    fn text(row: &Self::Row, index: usize) -> Result<Option<String>, sqlx::Error>;

    /// A column that is a whole number or NULL.
    ///
    /// # Errors
    /// If it is neither.
    fn number(row: &Self::Row, index: usize) -> Result<Option<i64>, sqlx::Error>;

    /// A column that is a boolean, as the database spells it.
    ///
    /// # Errors
    /// If it is none.
    fn flag(row: &Self::Row, index: usize) -> Result<bool, sqlx::Error>;

    /// A column that is bytes.
    ///
    /// # Errors
    /// If it is none.
    fn bytes(row: &Self::Row, index: usize) -> Result<Vec<u8>, sqlx::Error>;

    /// Binds a value as a column's type.
    ///
    /// # Errors
    /// If the value does not fit the type.
    fn bind(
        arguments: &mut Self::Arguments,
        value: &Value,
        column: &Self::ColumnType,
    ) -> Result<(), Misfit>;

    /// Binds a value of an answer, for a column that is to hold it. Only an INSERT of the rows of a
    /// query needs that, on MySQL and SQLite.
    ///
    /// # Errors
    /// If the value cannot be read.
    fn carry(
        _arguments: &mut Self::Arguments,
        _row: &Self::Row,
        _index: usize,
        _target: &Self::ColumnType,
    ) -> Result<Carried, sqlx::Error> {
        Ok(Carried::No)
    }

    /// Whether the session's time zone has the same offset all year.
    fn is_at_fixed_offset(
        _connection: &mut Self::Connection,
    ) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Lets no trigger of a table fire within this local transaction, so that an UPDATE of these
    /// columns stores what it says. Returns the statements that let them fire again; `None` where
    /// that cannot be, or would leave a constraint unchecked.
    fn silence<'c>(
        _connection: &'c mut Self::Connection,
        _table: &'c Table,
        _columns: &'c [usize],
    ) -> BoxFuture<'c, Result<Option<Vec<String>>, sqlx::Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether no constraint of the table judges the values that a row has between two changes, so
    /// that their sum may be written alone. Not on SQLite, where no trip is saved by it.
    fn judges_no_value<'c>(
        _connection: &'c mut Self::Connection,
        _table: &'c Table,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// A value of a column as JSON, as the undo log has it: an expression of text. `None` where the
    /// database cannot write it so.
    fn json(_column: &Self::ColumnType, _value: &str) -> Option<String> {
        None
    }

    /// Whether a column still has the type that it was described with, as a condition. `None` where
    /// an undo log with another type is noticed when it is read.
    fn has_type(_column: &Self::ColumnType, _name: &str) -> Option<String> {
        None
    }

    /// Texts joined to one, which is NULL if one of them may be and is.
    fn concat(texts: &[String]) -> String {
        format!("CONCAT({})", texts.join(", "))
    }

    /// A text as its bytes in UTF-8.
    fn utf8(text: &str) -> String {
        text.to_owned()
    }

    /// A whole-number column of whatever width, as [`Backend::number`] reads it.
    fn as_number(column: &str) -> String {
        match Self::DIALECT {
            Dialect::Postgres => format!("CAST({column} AS BIGINT)"),
            Dialect::MySql => format!("CAST({column} AS SIGNED)"),
            Dialect::Sqlite => column.to_owned(),
        }
    }

    /// Whether the driver cannot read values of the column.
    fn is_unread(_column: &Self::ColumnType) -> bool {
        false
    }

    /// Whether the column holds dates or times in a form that only the database reads.
    fn is_temporal(column: &Self::ColumnType) -> bool;

    /// Binds a text.
    fn bind_text(arguments: &mut Self::Arguments, value: &str);

    /// Binds a whole number.
    fn bind_number(arguments: &mut Self::Arguments, value: i64);

    /// Binds bytes.
    fn bind_bytes(arguments: &mut Self::Arguments, value: &[u8]);

    /// The name that an undo log records a type by: equal names mean that values can go back.
    fn type_name(column: &Self::ColumnType) -> String;

    /// Whether an error means that the local transaction is over.
    fn ends_transaction(error: &sqlx::Error) -> bool;

    /// Whether an answer to COMMIT shows for certain that the database has rolled back. An answer
    /// that a proxy may have given does not.
    fn says_rolled_back(error: &(dyn DatabaseError + 'static)) -> bool;

    /// Whether an error of [`Backend::BEFORE_COMMIT`] means that the mark is gone.
    fn is_mark_lost(_error: &sqlx::Error) -> bool {
        false
    }

    /// Whether an error means that the statement and the table do not agree about its columns.
    fn is_schema_mismatch(error: &sqlx::Error) -> bool;

    /// Whether an error means that a read is of a kind whose rows cannot be locked.
    fn refuses_row_locks(_error: &sqlx::Error) -> bool {
        false
    }

    /// Reads a table's description from the catalogue, over the connection that will write to it,
    /// so that search paths and current databases are the same. `None`: there is no such table.
    fn load_table<'c>(
        connection: &'c mut Self::Connection,
        name: &'c TableName,
        purpose: Purpose,
    ) -> BoxFuture<'c, Result<Option<LoadedTable<Self>>, sqlx::Error>>;

    /// Whether the database has a client table.
    fn has_client_table<'c>(
        connection: &'c mut Self::Connection,
        name: &'c str,
    ) -> BoxFuture<'c, Result<bool, sqlx::Error>>;

    /// Asks for the identity of the database.
    fn identity(connection: &mut Self::Connection) -> BoxFuture<'_, Result<Identity, sqlx::Error>>;

    /// How far apart the generated keys of one statement are.
    fn key_step(connection: &mut Self::Connection) -> BoxFuture<'_, Result<u64, sqlx::Error>>;

    /// Returns a stream that yields when an event is committed, where the database notifies.
    fn doorbell(
        _: &Pool<Self>,
    ) -> BoxFuture<'_, Result<Option<BoxStream<'static, ()>>, sqlx::Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The isolation level in force, where an upsert may depend on it; empty elsewhere.
    fn isolation_level(
        connection: &mut Self::Connection,
    ) -> BoxFuture<'_, Result<String, sqlx::Error>>;
}

/// Runs a query of ours to its end and returns its rows.
pub(crate) async fn rows<DB: Backend>(
    connection: &mut DB::Connection,
    text: String,
    arguments: DB::Arguments,
) -> Result<Vec<DB::Row>, sqlx::Error> {
    let steps = DB::steps(connection, BoundQuery::ours(text, arguments)).await?;
    Ok(steps.into_iter().filter_map(Either::right).collect())
}

/// Runs a query of ours to its end and returns how many rows it changed.
pub(crate) async fn execute<DB: Backend>(
    connection: &mut DB::Connection,
    text: String,
    arguments: DB::Arguments,
) -> Result<u64, sqlx::Error> {
    let steps = DB::steps(connection, BoundQuery::ours(text, arguments)).await?;
    Ok(affected::<DB>(&steps))
}

/// How many rows a statement changed.
pub(crate) fn affected<DB: Backend>(steps: &Steps<DB>) -> u64 {
    steps.iter().filter_map(|step| step.as_ref().left()).map(DB::rows_affected).sum()
}

/// How long a branch waits for global locks by default.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Implements what is the same text, but never the same type, for each database.
macro_rules! backend_basics {
    () => {
        fn steps(
            connection: &mut Self::Connection,
            query: BoundQuery<Self>,
        ) -> BoxFuture<'_, Result<Steps<Self>, sqlx::Error>> {
            futures::TryStreamExt::try_collect(sqlx::Executor::fetch_many(connection, query))
                .boxed()
        }

        fn rows_affected(result: &Self::QueryResult) -> u64 {
            result.rows_affected()
        }

        fn width(row: &Self::Row) -> usize {
            row.len()
        }

        fn text(row: &Self::Row, index: usize) -> Result<Option<String>, sqlx::Error> {
            row.try_get_unchecked(index)
        }

        fn bytes(row: &Self::Row, index: usize) -> Result<Vec<u8>, sqlx::Error> {
            row.try_get_unchecked(index)
        }

        fn bind_text(arguments: &mut Self::Arguments, value: &str) {
            sqlx::Arguments::add(arguments, value.to_owned()).expect("a text can be encoded");
        }

        fn bind_number(arguments: &mut Self::Arguments, value: i64) {
            sqlx::Arguments::add(arguments, value).expect("a number can be encoded");
        }

        fn bind_bytes(arguments: &mut Self::Arguments, value: &[u8]) {
            sqlx::Arguments::add(arguments, value.to_owned()).expect("bytes can be encoded");
        }
    };
}

pub(crate) use backend_basics;
