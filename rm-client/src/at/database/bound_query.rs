//! A query taken apart: everything that `sqlx::Execute` shows, owned.

use sqlx::error::BoxDynError;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use sqlx::{Database, Execute};

/// A query of the application, or one of ours about to be sent.
pub struct BoundQuery<DB: Database> {
    sql: SqlStr,
    pub(crate) arguments: Option<DB::Arguments>,
    statement: Option<DB::Statement>,
    persistent: bool,
}

impl<DB: Database> BoundQuery<DB> {
    /// Takes a query apart.
    pub(crate) fn take<'q, E: Execute<'q, DB>>(mut query: E) -> Result<Self, sqlx::Error> {
        let statement = query.statement().cloned();
        let persistent = query.persistent();
        let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
        // `sql` consumes the query, so it comes last.
        Ok(Self { sql: query.sql(), arguments, statement, persistent })
    }

    /// A query of our own, sent as a prepared statement so that its rows come in binary form.
    pub(crate) fn ours(text: String, arguments: DB::Arguments) -> Self {
        let sql = AssertSqlSafe(text).into_sql_str();
        Self { sql, arguments: Some(arguments), statement: None, persistent: true }
    }

    /// A query of our own without arguments, sent as plain text: some statements cannot be
    /// prepared.
    pub(crate) fn plain(text: String) -> Self {
        Self::of_text(AssertSqlSafe(text).into_sql_str())
    }

    /// A text without arguments that is not prepared.
    pub(crate) fn of_text(sql: SqlStr) -> Self {
        Self { sql, arguments: None, statement: None, persistent: false }
    }

    /// The same arguments under another text.
    pub(crate) fn with_text(&self, text: &str) -> Self
    where
        DB::Arguments: Clone,
    {
        let ours = self.sql.as_str() != text;
        let sql =
            if ours { AssertSqlSafe(text.to_owned()).into_sql_str() } else { self.sql.clone() };
        self.with(sql, ours)
    }

    /// The same arguments under another text, which is kept.
    pub(crate) fn with_sql(&self, sql: SqlStr) -> Self
    where
        DB::Arguments: Clone,
    {
        self.with(sql, true)
    }

    fn with(&self, sql: SqlStr, ours: bool) -> Self
    where
        DB::Arguments: Clone,
    {
        // A statement prepared by the application belongs to the application's text.
        let statement = if ours { None } else { self.statement.clone() };
        let arguments = Some(self.arguments.clone().unwrap_or_default());
        Self { sql, arguments, statement, persistent: self.persistent }
    }

    /// Keeps the statement out of the connection's cache: its text will hardly come again.
    pub(crate) fn uncached(mut self) -> Self {
        self.persistent = false;
        self
    }

    pub(crate) fn sql(&self) -> &SqlStr {
        &self.sql
    }

    /// Returns how many arguments are bound.
    pub(crate) fn argument_count(&self) -> usize {
        self.arguments.as_ref().map_or(0, sqlx::Arguments::len)
    }
}

impl<DB: Database<Arguments: Clone>> Clone for BoundQuery<DB> {
    fn clone(&self) -> Self {
        Self {
            sql: self.sql.clone(),
            arguments: self.arguments.clone(),
            statement: self.statement.clone(),
            persistent: self.persistent,
        }
    }
}

impl<DB: Database> std::fmt::Debug for BoundQuery<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the arguments: row values do not belong in logs.
        f.debug_struct("BoundQuery").field("sql", &self.sql.as_str()).finish_non_exhaustive()
    }
}

impl<'q, DB: Database> Execute<'q, DB> for BoundQuery<DB> {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&DB::Statement> {
        self.statement.as_ref()
    }

    fn take_arguments(&mut self) -> Result<Option<DB::Arguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.persistent
    }
}
