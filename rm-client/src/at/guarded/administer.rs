//! Guards are put on tables and taken away, over a pool and without a coordinator.

use handfast_rm_core::plan::guarded_sql;
use handfast_rm_core::plan::{Dialect, TableKind, TableName};
use sqlx::Pool;
use sqlx::pool::PoolConnection;

use super::error::GuardError;
use super::listing::{GuardMode, GuardedTable, find};
use super::sql::{now, parameters};
use super::{OF_BRANCHES, require_database, sweep};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::{AtDatabase, Backend, LoadedTable, Purpose, execute, rows};
use crate::at::error::AtError;

/// How long a guard that is put on a table lets every write pass. A process knows the triggers of
/// a table for at most a minute after that minute's beginning; until all know this one, branches
/// that are not marked may meet rows that are guarded.
const GRACE_SECONDS: u32 = 120;
/// How long a change of a table's triggers waits for transactions that use the table. All others
/// wait behind it meanwhile.
const LOCK_SECONDS: u32 = 5;

/// When a guard takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStart {
    /// When all running processes know of it: after two minutes.
    WhenKnown,
    /// At once: no process is using the table in a global.
    AtOnce,
}

/// Guards a table, or changes the mode of its guard. Until a guard that is put on takes effect it
/// lets every write pass.
///
/// # Errors
/// [`GuardError`]. What it says about nothing being changed holds for this table.
pub async fn enable<DB: AtDatabase>(
    pool: &Pool<DB>,
    table: &str,
    mode: GuardMode,
    start: GuardStart,
) -> Result<GuardedTable, GuardError> {
    let mut connection = pool.acquire().await?;
    require_database::<DB>(&mut connection).await?;
    require_isolation::<DB>(&mut connection).await?;
    let schema = client_schema::<DB>(&mut connection).await?;
    let loaded = load::<DB>(&mut connection, table).await?.ok_or_else(|| unknown(table))?;
    require_suitable(&loaded, &schema)?;
    let full_name = loaded.table.full_name();
    let known = find::<DB>(&mut connection, &full_name).await?;
    let mut texts = Vec::new();
    if known.is_none() {
        texts.extend(guarded_sql::routine(DB::DIALECT, &schema));
        texts.extend(guarded_sql::install(DB::DIALECT, &schema, &loaded.table));
    }
    let seconds = match start {
        GuardStart::WhenKnown => GRACE_SECONDS,
        GuardStart::AtOnce => 0,
    };
    let register = register::<DB>(&full_name, mode, seconds, known.is_some(), start);
    // Last: until then the triggers let every write pass.
    let statements = texts.into_iter().map(BoundQuery::plain).chain([register]);
    change::<DB>(connection, &full_name, statements.collect()).await?;
    let mut connection = pool.acquire().await?;
    let enabled = find::<DB>(&mut connection, &full_name).await?;
    enabled.ok_or(GuardError::NotGuarded { table: full_name })
}

/// Takes the guard of a table away, also while globals are undecided. What it has kept of them goes
/// with them.
///
/// # Errors
/// [`GuardError`].
pub async fn disable<DB: AtDatabase>(pool: &Pool<DB>, table: &str) -> Result<(), GuardError> {
    let mut connection = pool.acquire().await?;
    require_database::<DB>(&mut connection).await?;
    let schema = client_schema::<DB>(&mut connection).await?;
    let loaded = load::<DB>(&mut connection, table).await?;
    // A table that was dropped took its triggers along.
    let full_name = match &loaded {
        Some(loaded) => loaded.table.full_name(),
        None if table.contains('.') => table.to_owned(),
        None => format!("{schema}.{table}"),
    };
    if find::<DB>(&mut connection, &full_name).await?.is_none() {
        return Err(GuardError::NotGuarded { table: full_name });
    }
    let remove = |loaded: LoadedTable<DB>| guarded_sql::remove(DB::DIALECT, &schema, &loaded.table);
    let texts = loaded.map(remove).unwrap_or_default();
    let [one] = parameters::<DB, 1>();
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, &full_name);
    let text = format!("DELETE FROM guarded_table WHERE table_name = {one}");
    // First: from then on the triggers let every write pass.
    let statements = [BoundQuery::ours(text, arguments)];
    let statements = statements.into_iter().chain(texts.into_iter().map(BoundQuery::plain));
    change::<DB>(connection, &full_name, statements.collect()).await
}

/// Deletes what is kept of branches without an undo row, which holds off no write; of this global
/// also with one, so that its rows are guarded no more. Returns of how many branches, or, of a
/// global, how many rows.
///
/// # Errors
/// [`GuardError`].
pub async fn clean<DB: AtDatabase>(pool: &Pool<DB>, xid: Option<&str>) -> Result<u64, GuardError> {
    let mut connection = pool.acquire().await?;
    require_database::<DB>(&mut connection).await?;
    let Some(xid) = xid else {
        let (mut total, mut swept) = (0, 1);
        while swept > 0 {
            swept = sweep::<DB>(&mut connection).await?;
            total += swept as u64;
        }
        return Ok(total);
    };
    let mut deleted = 0;
    for table in OF_BRANCHES {
        let [one] = parameters::<DB, 1>();
        let mut arguments = DB::Arguments::default();
        DB::bind_text(&mut arguments, xid);
        let text = format!("DELETE FROM {table} WHERE xid = {one}");
        deleted += execute::<DB>(&mut connection, text, arguments).await?;
    }
    Ok(deleted)
}

/// The level that sessions of others begin with: what one of them sets for itself is not known.
async fn require_isolation<DB: Backend>(connection: &mut DB::Connection) -> Result<(), GuardError> {
    if DB::DIALECT != Dialect::MySql {
        return Ok(());
    }
    // One of both is there, depending on the product.
    let query = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                 ('tx_isolation', 'transaction_isolation')";
    let found = rows::<DB>(connection, query.to_owned(), DB::Arguments::default()).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let level = DB::text(row, 1)?.unwrap_or_default();
    if ["READ-COMMITTED", "READ-UNCOMMITTED"].contains(&level.as_str()) {
        return Ok(());
    }
    Err(GuardError::Isolation { level })
}

/// The schema that the client tables are in.
async fn client_schema<DB: Backend>(connection: &mut DB::Connection) -> Result<String, GuardError> {
    let text = match DB::DIALECT {
        Dialect::Postgres => "SELECT current_schema()::text",
        Dialect::MySql | Dialect::Sqlite => "SELECT DATABASE()",
    };
    let found = rows::<DB>(connection, text.to_owned(), DB::Arguments::default()).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(DB::text(row, 0)?.unwrap_or_default())
}

async fn load<DB: Backend>(
    connection: &mut DB::Connection,
    table: &str,
) -> Result<Option<LoadedTable<DB>>, GuardError> {
    let name = match table.split_once('.') {
        Some((schema, name)) => {
            TableName { schema: Some(schema.to_owned()), name: name.to_owned() }
        }
        None => TableName { schema: None, name: table.to_owned() },
    };
    Ok(DB::load_table(connection, &name, Purpose::Restoring).await?)
}

fn unknown(table: &str) -> GuardError {
    GuardError::At(AtError::UnknownTable { table: table.to_owned() })
}

fn require_suitable<DB: Backend>(
    loaded: &LoadedTable<DB>,
    client_schema: &str,
) -> Result<(), GuardError> {
    let table = &loaded.table;
    let refuse = |reason: &str| {
        let (table, reason) = (table.full_name(), reason.to_owned());
        Err(GuardError::Table { table, reason })
    };
    if !matches!(table.kind, TableKind::Ordinary | TableKind::Partitioned) {
        return refuse("it is a view, or its rows are kept elsewhere or without transactions");
    }
    if loaded.lock_name != table.full_name() {
        return refuse(&format!("its rows are those of {}: guard that table", loaded.lock_name));
    }
    if DB::DIALECT == Dialect::MySql && table.schema != client_schema {
        return refuse("it is in another database than the client tables");
    }
    if table.whole_rows || table.key.columns.is_empty() {
        return refuse("it has no primary key that would name its rows");
    }
    Ok(())
}

/// The statement that writes the table down as guarded.
fn register<DB: Backend>(
    full_name: &str,
    mode: GuardMode,
    seconds: u32,
    is_known: bool,
    start: GuardStart,
) -> BoundQuery<DB> {
    let [one, two] = parameters::<DB, 2>();
    let now = now::<DB>();
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, mode.stored());
    DB::bind_text(&mut arguments, full_name);
    let text = match (is_known, start) {
        (true, GuardStart::WhenKnown) => {
            format!("UPDATE guarded_table SET mode = {one} WHERE table_name = {two}")
        }
        (true, GuardStart::AtOnce) => format!(
            "UPDATE guarded_table SET mode = {one}, effective_from = {now} \
             WHERE table_name = {two}"
        ),
        (false, _) => {
            let from = match DB::DIALECT {
                Dialect::Postgres => format!("{now} + INTERVAL '{seconds} seconds'"),
                Dialect::MySql | Dialect::Sqlite => format!("{now} + INTERVAL {seconds} SECOND"),
            };
            format!(
                "INSERT INTO guarded_table (mode, table_name, enabled_at, effective_from) \
                 VALUES ({one}, {two}, {now}, {from})"
            )
        }
    };
    BoundQuery::ours(text, arguments)
}

/// Changes the triggers of a table, and what is written down about it: in one transaction on
/// PostgreSQL. MySQL commits each statement by itself; triggers of a table that is not written down
/// let every write pass, and are made again by another attempt.
async fn change<DB: AtDatabase>(
    connection: PoolConnection<DB>,
    full_name: &str,
    statements: Vec<BoundQuery<DB>>,
) -> Result<(), GuardError> {
    // Not used again, whatever happens: its settings are changed, and it may be in a transaction.
    let mut connection = connection.detach();
    let (before, after): (Vec<String>, Option<&str>) = match DB::DIALECT {
        Dialect::Postgres => (
            vec![
                "BEGIN".to_owned(),
                format!("SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"),
                // One change at a time.
                "LOCK TABLE guarded_table IN SHARE ROW EXCLUSIVE MODE".to_owned(),
            ],
            Some("COMMIT"),
        ),
        Dialect::MySql | Dialect::Sqlite => {
            (vec![format!("SET SESSION lock_wait_timeout = {LOCK_SECONDS}")], None)
        }
    };
    let busy = |error: sqlx::Error| {
        let code = error.as_database_error().and_then(|error| error.code().map(String::from));
        // lock_not_available; MySQL gives its time limits for locks this state in general.
        let is_busy = match DB::DIALECT {
            Dialect::Postgres => code.as_deref() == Some("55P03"),
            Dialect::MySql | Dialect::Sqlite => {
                error.to_string().contains("Lock wait timeout exceeded")
            }
        };
        if is_busy {
            GuardError::Busy { table: full_name.to_owned(), seconds: LOCK_SECONDS }
        } else {
            error.into()
        }
    };
    for statement in before.into_iter().map(BoundQuery::plain).chain(statements) {
        DB::steps(&mut connection, statement).await.map_err(busy)?;
    }
    if let Some(last) = after {
        DB::steps(&mut connection, BoundQuery::plain(last.to_owned())).await?;
    }
    Ok(())
}
