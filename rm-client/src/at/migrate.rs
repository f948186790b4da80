//! Makes the client tables of a database.

use std::collections::HashMap;

use handfast_rm_core::plan::Dialect;
use sqlx::Pool;

use super::database::bound_query::BoundQuery;
use super::database::{AtDatabase, Backend, execute, rows};
use super::error::AtError;
use crate::connect::Handfast;

impl Handfast {
    /// Makes the tables that a database needs to take part in global transactions, or brings them
    /// up to date. May be called at every start and by several processes at once: one works, the
    /// others wait, and what was applied is not applied again.
    ///
    /// ```no_run
    /// # async fn example(handfast: handfast::Handfast, pool: sqlx::SqlitePool) -> Result<(),
    /// handfast::AtError> { handfast.migrate(&pool).await?;
    /// let stock = handfast.at(pool).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AtError::MigrationChanged`] if the database belongs to another version,
    /// [`AtError::MigrationBusy`], or what the database says, for example that the user may not
    /// create tables.
    pub async fn migrate<DB: AtDatabase>(&self, pool: &Pool<DB>) -> Result<(), AtError> {
        migrate(pool).await
    }
}

/// Applies the missing migrations, in one process at a time.
pub(crate) async fn migrate<DB: AtDatabase>(pool: &Pool<DB>) -> Result<(), AtError> {
    let exclusion = handfast_migrations::exclusion(DB::MIGRATIONS);
    // Whatever happens, the connection is not used again: a run that was cut off may have left it
    // in a transaction or with a lock.
    let mut connection = pool.acquire().await?.detach();
    for text in exclusion.acquire {
        acquire::<DB>(&mut connection, text).await?;
    }
    let applied = apply_missing::<DB>(&mut connection).await;
    let last = if applied.is_ok() { exclusion.release } else { exclusion.abandon };
    let released = send::<DB>(&mut connection, last).await;
    // The first failure is the one that says what is wrong.
    applied?;
    released?;
    Ok(())
}

/// MySQL answers its lock request with a row; the others fail or succeed.
async fn acquire<DB: Backend>(
    connection: &mut DB::Connection,
    text: &'static str,
) -> Result<(), AtError> {
    if DB::DIALECT != Dialect::MySql {
        return Ok(send::<DB>(connection, text).await?);
    }
    let answer = rows::<DB>(connection, text.to_owned(), DB::Arguments::default()).await?;
    match answer.first().map(|row| DB::number(row, 0)).transpose()?.flatten() {
        Some(1) => Ok(()),
        Some(_) | None => Err(AtError::MigrationBusy),
    }
}

async fn send<DB: Backend>(connection: &mut DB::Connection, text: &str) -> Result<(), sqlx::Error> {
    DB::steps(connection, BoundQuery::plain(text.to_owned())).await.map(drop)
}

async fn apply_missing<DB: Backend>(connection: &mut DB::Connection) -> Result<(), AtError> {
    send::<DB>(connection, handfast_migrations::history_table(DB::MIGRATIONS)).await?;
    let applied = applied::<DB>(connection).await?;
    for migration in handfast_migrations::client_migrations(DB::MIGRATIONS) {
        let number = i64::from(migration.number);
        match applied.get(&number) {
            Some(checksum) if *checksum == migration.checksum() => {}
            Some(_) => {
                let name = migration.name.to_owned();
                return Err(AtError::MigrationChanged { number, name });
            }
            None => {
                for statement in migration.statements() {
                    send::<DB>(connection, statement).await?;
                }
                remember::<DB>(connection, migration).await?;
            }
        }
    }
    Ok(())
}

/// Checksums of what was applied, by number.
async fn applied<DB: Backend>(
    connection: &mut DB::Connection,
) -> Result<HashMap<i64, String>, AtError> {
    let number = DB::as_number("number");
    let text = format!("SELECT {number}, checksum FROM handfast_migrations");
    let mut applied = HashMap::new();
    for row in rows::<DB>(connection, text, DB::Arguments::default()).await? {
        let number = DB::number(&row, 0)?.unwrap_or_default();
        applied.insert(number, DB::text(&row, 1)?.unwrap_or_default());
    }
    Ok(applied)
}

async fn remember<DB: Backend>(
    connection: &mut DB::Connection,
    migration: &handfast_migrations::Migration,
) -> Result<(), AtError> {
    let mut arguments = DB::Arguments::default();
    DB::bind_number(&mut arguments, i64::from(migration.number));
    DB::bind_text(&mut arguments, migration.name);
    DB::bind_text(&mut arguments, &migration.checksum());
    let values = match DB::DIALECT {
        Dialect::Postgres => "$1, $2, $3",
        Dialect::MySql | Dialect::Sqlite => "?, ?, ?",
    };
    let text =
        format!("INSERT INTO handfast_migrations (number, name, checksum) VALUES ({values})");
    execute::<DB>(connection, text, arguments).await?;
    Ok(())
}
