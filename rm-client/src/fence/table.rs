//! The table `branch_fence`: finds the state of a branch and takes the step that the decision table
//! gives for it, at once.
//!
//! # Why it does not dead-lock
//!
//! Two operations of one branch meet on one row, and the second waits for the first one's local
//! transaction. That is a queue, not a cycle, as long as the fence comes first in its local
//! transaction and neither holds *gaps* between rows that the other wants to insert into.
//!
//! Gaps are the trap of MySQL's REPEATABLE READ (InnoDB manual, "Locks Set by Different SQL
//! Statements in InnoDB"). A locking read, UPDATE or DELETE that finds no row locks the gap where
//! it would stand, many transactions may hold the same gap, and an INSERT waits until all others
//! have released it: two cancels that look first and insert then are a deadlock, also of different
//! branches when their rows would be neighbours. So on MySQL an operation that may be the first of
//! its branch does not look: it **inserts at once**, and `ON DUPLICATE KEY UPDATE` takes the step
//! if a row is there. That locks the row, exclusively, by its whole primary key, and no gap; shared
//! locks that two waiters could both want to raise (`INSERT IGNORE`) do not occur either.
//! `LAST_INSERT_ID(status)` brings the state from before back with the answer, so that all of this
//! is one statement. A confirm is never the first of its branch and does not insert: what gap it
//! locks, when there is no row, it holds until its caller rolls back, and waits for nothing
//! meanwhile.
//!
//! One case stays. When a local transaction that inserted a row *rolls back*, every transaction
//! that waits for that row inherits a lock of the gap that it leaves, and then inserts: two waiters
//! (three operations of one branch at a time, or two neighbours of which the tries fail at the same
//! moment with a cancel waiting for each) may be a deadlock after all, at READ COMMITTED too,
//! whatever the statement. InnoDB ends one of them; since the fence came first, its local
//! transaction holds nothing and has done nothing, and [`Fence::run`](super::Fence::run) repeats it
//! unseen.
//! [`Fence::enter`](super::Fence::enter) cannot, because it did not begin the local transaction: it
//! answers `Conflict`.
//!
//! PostgreSQL and SQLite have no gap locks: the likely step is tried first, as an UPDATE, then the
//! INSERT, and a row that neither changed is read. An INSERT waits for a running one of the same
//! key. On PostgreSQL at REPEATABLE READ and SERIALIZABLE, waiting for a transaction that then
//! commits is a serialization failure, because the snapshot is older; that is `Conflict` again,
//! with the same answer. SQLite has one writer at a time, and the first statement here is a write:
//! it never has to raise a read lock, which is SQLite's deadlock.

use handfast_rm_core::fence::{FenceState, Operation, decide};
use sqlx::Transaction;

use super::Fence;
use super::error::FenceError;
use crate::at::{AtDatabase, Backend, BoundQuery, Dialect, execute, rows};

/// How often a row may come or go between two looks at it (BOUNDED).
const LOOKS_MAX: usize = 10;

/// Takes the step of an operation, and returns the state of the branch before it.
///
/// # Errors
/// The database's error.
pub(super) async fn advance<DB: AtDatabase>(
    local: &mut Transaction<'_, DB>,
    fence: &Fence,
    operation: Operation,
) -> Result<Option<FenceState>, sqlx::Error> {
    match DB::DIALECT {
        Dialect::MySql => advance_at_once::<DB>(local, fence, operation).await,
        Dialect::Postgres | Dialect::Sqlite => {
            advance_by_looks::<DB>(local, fence, operation).await
        }
    }
}

/// Puts data into the row. Returns whether there is a row.
pub(super) async fn leave<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
    context: &[u8],
) -> Result<bool, sqlx::Error> {
    let text = match DB::DIALECT {
        Dialect::Postgres => {
            "UPDATE branch_fence SET context = $1 WHERE xid = $2 AND branch_id = $3"
        }
        Dialect::MySql | Dialect::Sqlite => {
            "UPDATE branch_fence SET context = ? WHERE xid = ? AND branch_id = ?"
        }
    };
    let mut arguments = DB::Arguments::default();
    DB::bind_bytes(&mut arguments, context);
    bind_name::<DB>(&mut arguments, fence);
    Ok(execute::<DB>(connection, text.to_owned(), arguments).await? == 1)
}

/// The data in the row, if there is any.
pub(super) async fn left<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
) -> Result<Option<Vec<u8>>, sqlx::Error> {
    let named = is_named::<DB>();
    let text = format!("SELECT context FROM branch_fence WHERE {named} AND context IS NOT NULL");
    let found = rows::<DB>(connection, text, name::<DB>(fence)).await?;
    found.first().map(|row| DB::bytes(row, 0)).transpose()
}

/// Makes sure that the table is there and is ours.
pub(crate) async fn check<DB: Backend>(connection: &mut DB::Connection) -> Result<(), FenceError> {
    let text = "SELECT status, context FROM branch_fence WHERE 1 = 0".to_owned();
    let found = rows::<DB>(connection, text, DB::Arguments::default()).await;
    found.map(drop).map_err(explain::<DB>)
}

/// The error of a statement on the table.
pub(super) fn explain<DB: Backend>(error: sqlx::Error) -> FenceError {
    if DB::is_schema_mismatch(&error) {
        return FenceError::TableMissing { source: error };
    }
    error.into()
}

/// MySQL: one statement, which returns the state from before as the last insert id.
async fn advance_at_once<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
    operation: Operation,
) -> Result<Option<FenceState>, sqlx::Error> {
    let change = match operation.step() {
        Some((from, to)) => {
            let (from, to) = (from.number(), to.number());
            // In this order: an assignment sees what those before it have changed.
            format!(
                "modified_at = IF(status = {from}, UTC_TIMESTAMP(6), modified_at), \
                 status = IF(LAST_INSERT_ID(status) = {from}, {to}, status)"
            )
        }
        None => "status = LAST_INSERT_ID(status)".to_owned(),
    };
    let (text, arguments) = match operation.first() {
        Some(first) => {
            let text = format!("{} ON DUPLICATE KEY UPDATE {change}", insert_text::<DB>(first));
            (text, row::<DB>(fence))
        }
        None => {
            let text = format!("UPDATE branch_fence SET {change} WHERE xid = ? AND branch_id = ?");
            (text, name::<DB>(fence))
        }
    };
    let steps = DB::steps(connection, BoundQuery::ours(text, arguments)).await?;
    let answers = steps.iter().filter_map(|step| step.as_ref().left());
    match answers.filter_map(DB::last_insert_id).max() {
        // No state has the number 0: it stands for a branch that had no row.
        None | Some(0) => Ok(None),
        Some(before) => state(i64::try_from(before).unwrap_or(i64::MAX)).map(Some),
    }
}

/// PostgreSQL and SQLite: tries the likely step, then the first step, then reads the row.
async fn advance_by_looks<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
    operation: Operation,
) -> Result<Option<FenceState>, sqlx::Error> {
    for _ in 0..LOOKS_MAX {
        if let Some((from, to)) = operation.step()
            && update::<DB>(connection, fence, from, to).await?
        {
            return Ok(Some(from));
        }
        if let Some(first) = operation.first()
            && insert::<DB>(connection, fence, first).await?
        {
            return Ok(None);
        }
        let found = find::<DB>(connection, fence).await?;
        // Otherwise the row came or went since, and the step is still to be taken.
        if decide(found, operation).next.is_none() {
            return Ok(found);
        }
    }
    Err(sqlx::Error::Protocol(format!("{fence}: the fence comes and goes")))
}

async fn update<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
    from: FenceState,
    to: FenceState,
) -> Result<bool, sqlx::Error> {
    let text = format!(
        "UPDATE branch_fence SET status = {}, modified_at = {} WHERE {} AND status = {}",
        to.number(),
        now::<DB>(),
        is_named::<DB>(),
        from.number()
    );
    Ok(execute::<DB>(connection, text, name::<DB>(fence)).await? == 1)
}

async fn insert<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
    first: FenceState,
) -> Result<bool, sqlx::Error> {
    let text = format!("{} ON CONFLICT (xid, branch_id) DO NOTHING", insert_text::<DB>(first));
    Ok(execute::<DB>(connection, text, row::<DB>(fence)).await? == 1)
}

async fn find<DB: Backend>(
    connection: &mut DB::Connection,
    fence: &Fence,
) -> Result<Option<FenceState>, sqlx::Error> {
    let status = DB::as_number("status");
    let text = format!("SELECT {status} FROM branch_fence WHERE {}", is_named::<DB>());
    let found = rows::<DB>(connection, text, name::<DB>(fence)).await?;
    let Some(row) = found.first() else { return Ok(None) };
    state(DB::number(row, 0)?.unwrap_or_default()).map(Some)
}

fn insert_text<DB: Backend>(first: FenceState) -> String {
    let [a, b, c] = match DB::DIALECT {
        Dialect::Postgres => ["$1", "$2", "$3"],
        Dialect::MySql | Dialect::Sqlite => ["?"; 3],
    };
    let (first, now) = (first.number(), now::<DB>());
    format!(
        "INSERT INTO branch_fence (xid, branch_id, action, status, created_at, modified_at) \
         VALUES ({a}, {b}, {c}, {first}, {now}, {now})"
    )
}

fn is_named<DB: Backend>() -> &'static str {
    match DB::DIALECT {
        Dialect::Postgres => "xid = $1 AND branch_id = $2",
        Dialect::MySql | Dialect::Sqlite => "xid = ? AND branch_id = ?",
    }
}

/// The database's clock, whatever the time zone of the session.
pub(super) fn now<DB: Backend>() -> &'static str {
    match DB::DIALECT {
        Dialect::Postgres => "CURRENT_TIMESTAMP",
        Dialect::MySql => "UTC_TIMESTAMP(6)",
        Dialect::Sqlite => "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    }
}

fn name<DB: Backend>(fence: &Fence) -> DB::Arguments {
    let mut arguments = DB::Arguments::default();
    bind_name::<DB>(&mut arguments, fence);
    arguments
}

fn bind_name<DB: Backend>(arguments: &mut DB::Arguments, fence: &Fence) {
    DB::bind_text(arguments, fence.xid.as_str());
    DB::bind_number(arguments, fence.branch);
}

fn row<DB: Backend>(fence: &Fence) -> DB::Arguments {
    let mut arguments = name::<DB>(fence);
    DB::bind_text(&mut arguments, &fence.action);
    arguments
}

fn state(number: i64) -> Result<FenceState, sqlx::Error> {
    let unknown = || sqlx::Error::Protocol(format!("branch_fence holds status {number}"));
    FenceState::from_number(number).ok_or_else(unknown)
}
