//! Queries of SQLite's schema.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Sqlite, SqliteConnection};

use crate::at::database::{Backend, rows};

pub(super) fn text(row: &SqliteRow, index: usize) -> Result<String, sqlx::Error> {
    Ok(Sqlite::text(row, index)?.unwrap_or_default())
}

/// Runs a query with the table's name as `?1` and its schema as `?2`.
pub(super) async fn by_name(
    connection: &mut SqliteConnection,
    query: String,
    full: &[String; 2],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for part in full {
        arguments.add(part.clone()).map_err(sqlx::Error::Encode)?;
    }
    rows::<Sqlite>(connection, query, arguments).await
}

pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A `CREATE` statement of the schema.
pub(super) struct Definition {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) sql: String,
    /// It is in the schema of temporary things.
    pub(super) temporary: bool,
}

impl Definition {
    pub(super) fn is_trigger(&self) -> bool {
        self.kind == "trigger"
    }
}

/// The statements that made the table and its triggers.
pub(super) async fn definitions(
    connection: &mut SqliteConnection,
    full: &[String; 2],
) -> Result<Vec<Definition>, sqlx::Error> {
    // Temporary triggers may hang on any table.
    let query = format!(
        "SELECT type, name, sql, ?2 = 'temp' FROM {}.sqlite_schema \
         WHERE tbl_name = ?1 COLLATE NOCASE \
         UNION ALL SELECT type, name, sql, 1 FROM temp.sqlite_schema \
         WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND ?2 <> 'temp'",
        quote(&full[1])
    );
    let found = by_name(connection, query, full).await?;
    let definition = |row: &SqliteRow| {
        let (kind, name, sql) = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
        Ok(Definition { kind, name, sql, temporary: Sqlite::flag(row, 3)? })
    };
    found.iter().map(definition).collect()
}
