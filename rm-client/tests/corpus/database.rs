//! The operations that the test needs from each database: fresh databases, statements with and
//! without the library, rows as texts, and a way back to the first rows.

use either::Either;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{AtDatabase, AtTransaction};
use sqlx::pool::PoolConnection;
use sqlx::{Pool, Transaction};

use crate::entry::Entry;
use crate::mask::masked;

/// A row as texts; `None` is NULL.
pub(crate) type TextRow = Vec<Option<String>>;

/// The answer to a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Rows affected; for a read the number of its rows, since databases count reads differently.
    pub(crate) affected: u64,
    /// Sorted, since few statements have an ORDER BY.
    pub(crate) rows: Vec<TextRow>,
}

impl Answer {
    /// Adds the steps of a statement's answer.
    pub(crate) fn add<R: Into<u64>>(&mut self, sql: &str, steps: Vec<Either<R, TextRow>>) {
        for step in steps {
            match step {
                Either::Left(affected) if !reads(sql) => self.affected += affected.into(),
                Either::Left(_) => {}
                Either::Right(row) => {
                    let cell = |cell: Option<String>| cell.map(|text| masked(&text));
                    self.rows.push(row.into_iter().map(cell).collect());
                }
            }
        }
        self.rows.sort();
    }
}

fn reads(sql: &str) -> bool {
    sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))
}

/// A way to set numbers that a database generates.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    /// The table that takes them, where each is set by itself.
    pub(crate) table: Option<String>,
    pub(crate) sql: String,
}

/// A fresh database, and the directory that must outlive it.
pub(crate) type Fresh<DB> = (Pool<DB>, Option<tempfile::TempDir>);

/// A database product on which the corpus runs.
pub(crate) trait Product: AtDatabase {
    /// The name of its files.
    const FILE: &'static str;
    const TITLE: &'static str;
    /// SQL after which foreign keys are not checked, and triggers do not fire where the database
    /// can switch that off, and SQL that ends this.
    const UNCHECKED: [&'static str; 2];

    fn create() -> BoxFuture<'static, Fresh<Self>>;

    /// Executes an entry through the library.
    fn ours<'q>(
        local: &'q mut AtTransaction<'_, Self>,
        entry: &'q Entry,
    ) -> BoxFuture<'q, Result<Answer, sqlx::Error>>;

    /// Executes an entry without the library.
    fn plain<'q>(
        local: &'q mut Transaction<'static, Self>,
        entry: &'q Entry,
    ) -> BoxFuture<'q, Result<Answer, sqlx::Error>>;

    /// Executes SQL of several statements.
    fn raw<'q>(
        connection: &'q mut PoolConnection<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>>;

    /// Reads rows of texts.
    fn texts<'q>(
        pool: &'q Pool<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;

    /// Reads rows of texts in a transaction.
    fn texts_in<'q>(
        local: &'q mut Transaction<'static, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>>;

    /// Returns a value of an answer as a text that differs for any two values.
    fn cell(value: Self::ValueRef<'_>) -> Result<Option<String>, sqlx::Error>;

    /// Returns a statement as the database alone takes it.
    fn past_the_library(sql: &str) -> String {
        sql.to_owned()
    }

    /// Returns SQL that lists tables with a SELECT of all their columns in one text.
    fn list_tables() -> &'static str;

    /// Returns SQL that sets the number generators to where they are: no database takes numbers
    /// back that a rolled back statement took.
    fn generators(pool: &Pool<Self>) -> BoxFuture<'_, Vec<Generator>>;

    /// Removes the database, where it would be a burden for others.
    fn remove(_: &Pool<Self>) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// The implementation is the same text for each database, but the types differ.
macro_rules! execution {
    ($db:ty) => {
        fn ours<'q>(
            local: &'q mut AtTransaction<'_, Self>,
            entry: &'q Entry,
        ) -> BoxFuture<'q, Result<Answer, sqlx::Error>> {
            async move {
                let mut answer = Answer::default();
                for sql in &entry.statements {
                    let query = query!($db, entry, sql);
                    answer.add(sql, steps!($db, Executor::fetch_many(&mut *local, query)));
                }
                Ok(answer)
            }
            .boxed()
        }

        fn plain<'q>(
            local: &'q mut Transaction<'static, Self>,
            entry: &'q Entry,
        ) -> BoxFuture<'q, Result<Answer, sqlx::Error>> {
            async move {
                let mut answer = Answer::default();
                for sql in &entry.statements {
                    let sql = Self::past_the_library(sql);
                    let query = query!($db, entry, sql);
                    answer.add(&sql, steps!($db, Executor::fetch_many(&mut **local, query)));
                }
                Ok(answer)
            }
            .boxed()
        }

        fn raw<'q>(
            connection: &'q mut PoolConnection<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<(), sqlx::Error>> {
            let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
            async move { query.execute(&mut **connection).await.map(|_| ()) }.boxed()
        }

        fn texts<'q>(
            pool: &'q Pool<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
            async move { query.fetch_all(pool).await?.iter().map(text_row!()).collect() }.boxed()
        }

        fn texts_in<'q>(
            local: &'q mut Transaction<'static, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<Vec<TextRow>, sqlx::Error>> {
            let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
            async move { query.fetch_all(&mut **local).await?.iter().map(text_row!()).collect() }
                .boxed()
        }
    };
}

macro_rules! text_row {
    () => {
        |row| (0..row.len()).map(|index| row.try_get_unchecked(index)).collect()
    };
}

macro_rules! query {
    ($db:ty, $entry:expr, $sql:expr) => {{
        let mut query = sqlx::query::<$db>(AssertSqlSafe($sql.clone()));
        for argument in &$entry.bound {
            query = match argument {
                Bound::Null => query.bind(None::<String>),
                Bound::Whole(number) => query.bind(*number),
                Bound::Text(text) => query.bind(text.clone()),
            };
        }
        query
    }};
}

/// The columns that the library adds to an answer are left out.
macro_rules! steps {
    ($db:ty, $stream:expr) => {{
        let steps: Vec<_> = $stream.try_collect().await?;
        let mut texts = Vec::new();
        for step in steps {
            texts.push(match step {
                Either::Left(result) => Either::Left(result.rows_affected()),
                Either::Right(row) => {
                    let own = row.columns().iter().map(|column| !column.name().starts_with("hf_"));
                    let own = own.enumerate().filter(|(_, own)| *own);
                    let cells = own.map(|(index, _)| Self::cell(row.try_get_raw(index)?));
                    Either::Right(cells.collect::<Result<TextRow, sqlx::Error>>()?)
                }
            });
        }
        texts
    }};
}

pub(crate) use {execution, query, steps, text_row};

/// Returns the address of a test server.
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `cargo xtask test`, which starts servers")
    })
}

pub(crate) fn fresh_name() -> String {
    format!("corpus_{}", uuid::Uuid::new_v4().simple())
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
