//! Statements of this module, built from text and arguments in order.
//!
//! Placeholders are written in the form of each database. Text never comes from a user: values
//! travel as arguments.

use crate::at::{AtDatabase, Backend, Dialect, execute, rows};

/// A statement under construction.
pub(super) struct Query<DB: Backend> {
    text: String,
    arguments: DB::Arguments,
    bound: usize,
}

impl<DB: AtDatabase> Query<DB> {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), arguments: DB::Arguments::default(), bound: 0 }
    }

    /// Appends text.
    pub(super) fn sql(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    pub(super) fn number(mut self, value: i64) -> Self {
        DB::bind_number(&mut self.arguments, value);
        self.placeholder();
        self
    }

    pub(super) fn text(mut self, value: &str) -> Self {
        DB::bind_text(&mut self.arguments, value);
        self.placeholder();
        self
    }

    pub(super) fn bytes(mut self, value: &[u8]) -> Self {
        DB::bind_bytes(&mut self.arguments, value);
        self.placeholder();
        self
    }

    /// Appends a list of numbers in parentheses, at least one. The list is filled up to a power of
    /// two by repeating the last number, so that few texts serve all sizes and statement caches
    /// stay small.
    pub(super) fn numbers(mut self, values: &[i64]) -> Self {
        assert!(!values.is_empty(), "SQL has no empty list");
        let named = values.len().next_power_of_two();
        self.text.push('(');
        for (at, value) in values
            .iter()
            .chain(std::iter::repeat(&values[values.len() - 1]))
            .take(named)
            .enumerate()
        {
            if at > 0 {
                self.text.push_str(", ");
            }
            self = self.number(*value);
        }
        self.sql(")")
    }

    /// Appends the database's clock, in milliseconds since 1970. It advances within a transaction.
    pub(super) fn now(self) -> Self {
        self.sql(match DB::DIALECT {
            Dialect::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
            Dialect::MySql => {
                "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000)"
            }
            Dialect::Sqlite => "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)",
        })
    }

    pub(super) async fn rows(
        self,
        connection: &mut DB::Connection,
    ) -> Result<Vec<DB::Row>, sqlx::Error> {
        rows::<DB>(connection, self.text, self.arguments).await
    }

    /// Executes the statement and returns how many rows it changed.
    pub(super) async fn execute(self, connection: &mut DB::Connection) -> Result<u64, sqlx::Error> {
        execute::<DB>(connection, self.text, self.arguments).await
    }

    fn placeholder(&mut self) {
        self.bound += 1;
        match DB::DIALECT {
            Dialect::Postgres => self.text.push_str(&format!("${}", self.bound)),
            Dialect::MySql | Dialect::Sqlite => self.text.push('?'),
        }
    }
}

/// Reads a column of whole numbers, which the statement has cast so that [`Backend::number`] can
/// read it.
pub(super) fn number_of<DB: Backend>(row: &DB::Row, index: usize) -> Result<i64, sqlx::Error> {
    Ok(DB::number(row, index)?.unwrap_or_default())
}

pub(super) fn text_of<DB: Backend>(row: &DB::Row, index: usize) -> Result<String, sqlx::Error> {
    Ok(DB::text(row, index)?.unwrap_or_default())
}
