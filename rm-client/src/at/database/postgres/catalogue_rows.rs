//! Queries of PostgreSQL's catalogue.

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, PgConnection, Postgres};

use crate::at::database::rows;

pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The answer to a query about a relation.
pub(super) async fn by_oid(
    connection: &mut PgConnection,
    text: &str,
    oid: i64,
) -> Result<Vec<sqlx::postgres::PgRow>, sqlx::Error> {
    let mut arguments = PgArguments::default();
    arguments.add(oid).map_err(sqlx::Error::Encode)?;
    rows::<Postgres>(connection, text.to_owned(), arguments).await
}
