//! Guards are put on tables, taken away and listed, over a pool and without a coordinator.

use handfast_rm_core::plan::guarded_sql;
use handfast_rm_core::plan::{Dialect, TableKind, TableName};
use sqlx::Pool;
use sqlx::pool::PoolConnection;

use super::error::GuardError;
use super::{OF_BRANCHES, has_tables, sweep};
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

/// The effect of a guard on a write from outside to a row of an undecided global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    /// It refuses the write.
    Refuse,
    /// It lets the write pass, and notes who wrote: a rollback that finds the row dirty tells.
    Watch,
}

/// When a guard takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStart {
    /// When all running processes know of it: after two minutes.
    WhenKnown,
    /// At once: no process is using the table in a global.
    AtOnce,
}

/// A guarded table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardedTable {
    /// Its full name.
    pub table: String,
    /// The mode of its guard.
    pub mode: GuardMode,
    /// The time from which on the guard takes effect, in UTC.
    pub effective_from: String,
    /// Whether that has passed.
    pub in_force: bool,
    /// How many rows of the table are kept as guarded, those without effect included.
    pub rows: u64,
}

/// A branch whose rows are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardHolder {
    /// The global.
    pub xid: String,
    /// The branch.
    pub branch: u64,
    /// The table.
    pub table: String,
    /// How many of its rows.
    pub rows: u64,
    /// When the first of them was written, in UTC.
    pub since: String,
    /// Whether the branch's undo row is there. Without it the guarded rows hold off no write.
    pub in_force: bool,
}

impl GuardMode {
    fn stored(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Watch => "watch",
        }
    }
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

/// Lists the guarded tables by name.
///
/// # Errors
/// [`GuardError`].
pub async fn list<DB: AtDatabase>(pool: &Pool<DB>) -> Result<Vec<GuardedTable>, GuardError> {
    let mut connection = pool.acquire().await?;
    require_database::<DB>(&mut connection).await?;
    tables::<DB>(&mut connection, None).await
}

/// Lists the branches whose rows are kept as guarded, the oldest first.
///
/// # Errors
/// [`GuardError`].
pub async fn holders<DB: AtDatabase>(
    pool: &Pool<DB>,
    limit: u32,
) -> Result<Vec<GuardHolder>, GuardError> {
    let mut connection = pool.acquire().await?;
    require_database::<DB>(&mut connection).await?;
    let (branch, count) = (DB::as_number("g.branch_id"), DB::as_number("COUNT(*)"));
    let text = format!(
        "SELECT g.xid, {branch}, g.table_name, {count}, {}, {} FROM guarded_row g \
         LEFT JOIN undo_log u ON u.xid = g.xid AND u.branch_id = g.branch_id AND u.log_status = 0 \
         GROUP BY g.xid, g.branch_id, g.table_name, u.xid ORDER BY MIN(g.written_at) LIMIT {limit}",
        time::<DB>("MIN(g.written_at)"),
        DB::as_number("CASE WHEN u.xid IS NULL THEN 0 ELSE 1 END"),
    );
    let mut holders = Vec::new();
    for row in rows::<DB>(&mut connection, text, DB::Arguments::default()).await? {
        let text = |index| DB::text(&row, index).map(Option::unwrap_or_default);
        let number = |index| DB::number(&row, index).map(Option::unwrap_or_default);
        holders.push(GuardHolder {
            xid: text(0)?,
            branch: u64::try_from(number(1)?).unwrap_or_default(),
            table: text(2)?,
            rows: u64::try_from(number(3)?).unwrap_or_default(),
            since: text(4)?,
            in_force: number(5)? != 0,
        });
    }
    Ok(holders)
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

async fn require_database<DB: Backend>(connection: &mut DB::Connection) -> Result<(), GuardError> {
    if DB::DIALECT == Dialect::Sqlite {
        return Err(GuardError::Database { database: "SQLite" });
    }
    if !has_tables::<DB>(connection).await? {
        return Err(GuardError::At(AtError::ClientTableMissing {
            table: handfast_migrations::GUARD_TABLES[0].to_owned(),
            resource: format!("this {} database", DB::NAME),
            folder: DB::FOLDER,
        }));
    }
    Ok(())
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

async fn find<DB: Backend>(
    connection: &mut DB::Connection,
    full_name: &str,
) -> Result<Option<GuardedTable>, GuardError> {
    Ok(tables::<DB>(connection, Some(full_name)).await?.pop())
}

async fn tables<DB: Backend>(
    connection: &mut DB::Connection,
    only: Option<&str>,
) -> Result<Vec<GuardedTable>, GuardError> {
    let [one] = parameters::<DB, 1>();
    let mut arguments = DB::Arguments::default();
    let condition = match only {
        Some(name) => {
            DB::bind_text(&mut arguments, name);
            format!(" WHERE t.table_name = {one}")
        }
        None => String::new(),
    };
    let counted =
        DB::as_number("(SELECT COUNT(*) FROM guarded_row g WHERE g.table_name = t.table_name)");
    let text = format!(
        "SELECT t.table_name, t.mode, {}, {}, {counted} FROM guarded_table t{condition} \
         ORDER BY t.table_name",
        time::<DB>("t.effective_from"),
        DB::as_number(&format!("CASE WHEN t.effective_from <= {} THEN 1 ELSE 0 END", now::<DB>())),
    );
    let mut tables = Vec::new();
    for row in rows::<DB>(connection, text, arguments).await? {
        let text = |index| DB::text(&row, index).map(Option::unwrap_or_default);
        let number = |index| DB::number(&row, index).map(Option::unwrap_or_default);
        tables.push(GuardedTable {
            table: text(0)?,
            mode: if text(1)? == "watch" { GuardMode::Watch } else { GuardMode::Refuse },
            effective_from: text(2)?,
            in_force: number(3)? != 0,
            rows: u64::try_from(number(4)?).unwrap_or_default(),
        });
    }
    Ok(tables)
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
/// let every write pass, and are made anew by another attempt.
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

/// The time at which a statement runs, as the tables of guards keep it.
fn now<DB: Backend>() -> &'static str {
    match DB::DIALECT {
        Dialect::Postgres => "clock_timestamp()",
        Dialect::MySql | Dialect::Sqlite => "UTC_TIMESTAMP(6)",
    }
}

/// A time as text, in UTC.
fn time<DB: Backend>(expression: &str) -> String {
    match DB::DIALECT {
        Dialect::Postgres => {
            format!(r#"to_char({expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"#)
        }
        Dialect::MySql | Dialect::Sqlite => {
            format!("DATE_FORMAT({expression}, '%Y-%m-%dT%H:%i:%sZ')")
        }
    }
}

fn parameters<DB: Backend, const N: usize>() -> [String; N] {
    std::array::from_fn(|index| match DB::DIALECT {
        Dialect::Postgres => format!("${}", index + 1),
        Dialect::MySql | Dialect::Sqlite => "?".to_owned(),
    })
}
