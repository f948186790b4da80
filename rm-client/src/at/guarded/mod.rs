//! Guarded tables: the marks by which their triggers know local transactions of this library, and
//! the rows that the triggers leave behind.
//!
//! A trigger cannot tell a branch from a forgotten job, so a local transaction marks itself before
//! its first change of a guarded table. The trigger then keeps the row's key, which holds others
//! off while the branch's undo row is there. So phase two ends a guard by deleting the undo row;
//! what is left of it is deleted behind that (`leftovers`), and hourly by [`sweep`].
//! `docs/decisions/0037-guarded-tables.md` has the reasons.

mod administer;
mod error;
mod listing;
mod notes;
mod sql;

use handfast_rm_core::plan::Dialect;
use handfast_rm_core::plan::guarded_sql::PASS;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

pub use administer::{GuardStart, clean, disable, enable};
pub use error::GuardError;
pub use listing::{GuardHolder, GuardMode, GuardedTable, holders, list};
pub(crate) use notes::with_notes;

use super::database::bound_query::BoundQuery;
use super::database::{Backend, rows};
use super::error::AtError;
use super::undo::table::{DELETE_MAX, delete_named};
use crate::xid::Xid;

/// The tables whose rows are named by a branch.
const OF_BRANCHES: [&str; 2] = ["guarded_row", "guarded_note"];

/// How a local transaction passes the guards.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// As a branch, whose rows are guarded from then on.
    Branch(Xid, u64),
    /// As one that has other means of respecting undecided globals.
    Pass,
}

impl Mark {
    /// The statement that marks the local transaction.
    pub(crate) fn text<DB: Backend>() -> &'static str {
        match DB::DIALECT {
            Dialect::Postgres | Dialect::Sqlite => "SELECT set_config('handfast.branch', $1, true)",
            Dialect::MySql => {
                "INSERT INTO guarded_writer (connection_id, xid, branch_id) \
                 VALUES (CONNECTION_ID(), ?, ?) \
                 ON DUPLICATE KEY UPDATE xid = VALUES(xid), branch_id = VALUES(branch_id)"
            }
        }
    }

    /// Binds the arguments of the statement behind those that are there.
    pub(crate) fn bind<DB: Backend>(&self, arguments: &mut DB::Arguments) {
        match (DB::DIALECT, self) {
            (Dialect::Postgres | Dialect::Sqlite, _) => DB::bind_text(arguments, &self.setting()),
            (Dialect::MySql, Self::Branch(xid, branch)) => {
                DB::bind_text(arguments, xid.as_str());
                DB::bind_number(arguments, i64::try_from(*branch).unwrap_or(i64::MAX));
            }
            (Dialect::MySql, Self::Pass) => {
                DB::bind_text(arguments, PASS);
                DB::bind_number(arguments, 0);
            }
        }
    }

    pub(crate) fn query<DB: Backend>(&self, text: String) -> BoundQuery<DB> {
        let mut arguments = DB::Arguments::default();
        self.bind::<DB>(&mut arguments);
        BoundQuery::ours(text, arguments)
    }

    fn setting(&self) -> String {
        match self {
            Self::Branch(xid, branch) => format!("{branch} {xid}"),
            Self::Pass => PASS.to_owned(),
        }
    }

    /// The text that begins a local transaction with this mark, where that takes no call of its
    /// own.
    pub(crate) fn begin<DB: Backend>(&self) -> Option<SqlStr> {
        let setting = self.setting().replace('\'', "''");
        let text = format!("BEGIN; SET LOCAL handfast.branch = '{setting}'");
        (DB::DIALECT == Dialect::Postgres).then(|| AssertSqlSafe(text).into_sql_str())
    }
}

/// The statement that takes the mark away before COMMIT, where it does not go with the transaction.
pub(crate) fn unmark_text<DB: Backend>() -> Option<&'static str> {
    match DB::DIALECT {
        Dialect::Postgres | Dialect::Sqlite => None,
        Dialect::MySql => Some("DELETE FROM guarded_writer WHERE connection_id = CONNECTION_ID()"),
    }
}

/// Marks a local transaction.
pub(crate) async fn mark<DB: Backend>(
    connection: &mut DB::Connection,
    mark: &Mark,
) -> Result<(), sqlx::Error> {
    DB::steps(connection, mark.query(Mark::text::<DB>().to_owned())).await?;
    Ok(())
}

/// Takes the mark away before COMMIT.
pub(crate) async fn unmark<DB: Backend>(
    connection: &mut DB::Connection,
) -> Result<(), sqlx::Error> {
    if let Some(text) = unmark_text::<DB>() {
        DB::steps(connection, BoundQuery::ours(text.to_owned(), DB::Arguments::default())).await?;
    }
    Ok(())
}

/// Deletes what belongs to branches that have ended.
pub(crate) async fn remove<DB: Backend>(
    connection: &mut DB::Connection,
    branches: &[(&str, u64)],
) -> Result<(), sqlx::Error> {
    if !has_tables::<DB>(connection).await? {
        return Ok(());
    }
    for table in OF_BRANCHES {
        delete_named::<DB>(connection, table, branches).await?;
    }
    Ok(())
}

/// Refuses a database that has no guards, or none of the tables that they need.
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

async fn has_tables<DB: Backend>(connection: &mut DB::Connection) -> Result<bool, sqlx::Error> {
    if DB::DIALECT == Dialect::Sqlite {
        return Ok(false);
    }
    for table in handfast_migrations::GUARD_TABLES {
        if !DB::has_client_table(connection, table).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes what belongs to branches without an undo row, which hold off no write: of at most
/// [`DELETE_MAX`] branches from each table. Returns the number of branches.
pub(crate) async fn sweep<DB: Backend>(
    connection: &mut DB::Connection,
) -> Result<usize, sqlx::Error> {
    if !has_tables::<DB>(connection).await? {
        return Ok(0);
    }
    let mut swept = 0;
    for table in OF_BRANCHES {
        // A plain read first: a DELETE would wait for rows of branches that are still open. A row
        // and the undo row that it belongs to are committed together.
        let text = format!(
            "SELECT DISTINCT xid, {} FROM {table} g WHERE NOT EXISTS (SELECT 1 FROM undo_log u \
             WHERE u.xid = g.xid AND u.branch_id = g.branch_id AND u.log_status = 0) \
             LIMIT {DELETE_MAX}",
            DB::as_number("branch_id")
        );
        let mut left_over = Vec::new();
        for row in rows::<DB>(connection, text, DB::Arguments::default()).await? {
            let (xid, branch) = (DB::text(&row, 0)?, DB::number(&row, 1)?);
            let branch = branch.and_then(|branch| u64::try_from(branch).ok());
            left_over.extend(xid.zip(branch));
        }
        let names: Vec<(&str, u64)> =
            left_over.iter().map(|(xid, branch)| (xid.as_str(), *branch)).collect();
        delete_named::<DB>(connection, table, &names).await?;
        swept += names.len();
    }
    Ok(swept)
}
