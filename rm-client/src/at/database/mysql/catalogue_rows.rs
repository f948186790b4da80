//! Reads of the server's catalogue.

use handfast_rm_core::plan::Column;
use sqlx::mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow};
use sqlx::{Arguments as _, MySql, MySqlConnection};

use crate::at::database::{Backend as _, rows};

/// A text of a row; nothing for NULL.
pub(super) fn text(row: &MySqlRow, index: usize) -> Result<String, sqlx::Error> {
    Ok(MySql::text(row, index)?.unwrap_or_default())
}

/// The answer to a query about a table, or another object, by schema and name.
pub(super) async fn by_name(
    connection: &mut MySqlConnection,
    query: &str,
    full: &[String; 2],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut arguments = MySqlArguments::default();
    for part in full {
        arguments.add(part).map_err(sqlx::Error::Encode)?;
    }
    rows::<MySql>(connection, query.to_owned(), arguments).await
}

/// The position of a column.
pub(super) fn position(columns: &[Column], name: &str) -> Option<usize> {
    columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
}

/// Whether an error denies access to the database, the table or the column.
pub(super) fn is_denied(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.is_some_and(|error| matches!(error.number(), 1044 | 1142 | 1143 | 1227))
}

/// A name in backticks.
pub(super) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
