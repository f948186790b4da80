//! The guarded tables of a database, and the branches whose rows are guarded.

use sqlx::Pool;

use super::error::GuardError;
use super::require_database;
use super::sql::{now, parameters, time};
use crate::at::database::{AtDatabase, Backend, rows};

/// The effect of a guard on a write from outside to a row of an undecided global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    /// It refuses the write.
    Refuse,
    /// It lets the write pass, and notes who wrote: a rollback that finds the row dirty tells.
    Watch,
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
    pub(super) fn stored(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Watch => "watch",
        }
    }

    fn of_stored(text: &str) -> Self {
        if text == Self::Watch.stored() { Self::Watch } else { Self::Refuse }
    }
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

/// Finds a guarded table by its full name.
pub(super) async fn find<DB: Backend>(
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
            mode: GuardMode::of_stored(&text(1)?),
            effective_from: text(2)?,
            in_force: number(3)? != 0,
            rows: u64::try_from(number(4)?).unwrap_or_default(),
        });
    }
    Ok(tables)
}
