//! The `undo_log` table: one row per branch, from its local transaction until phase two is done.

use handfast_rm_core::plan::Dialect;

use crate::at::database::{Backend, execute, rows};
use crate::xid::Xid;

/// A row that is a branch's undo log.
pub(crate) const NORMAL: i64 = 0;
/// A row that keeps a late local transaction out: its branch was rolled back before it committed.
pub(crate) const GUARD: i64 = 1;

/// The `context` of the rows of this version.
const CONTEXT: &str = "format=json";

/// The addition to `context` where the branch holds events.
const HOLDS_EVENTS: &str = "&events=held";

/// The prefix of the time zone in `context`.
const TIME_ZONE: &str = "&time_zone=";

/// Branches whose undo rows one DELETE removes at most.
pub(crate) const DELETE_MAX: usize = 1_000;

/// An undo row as phase two finds it.
#[derive(Debug)]
pub(crate) enum Found {
    /// The branch committed locally.
    Log {
        log: Vec<u8>,
        /// The session's time zone of then, in which MySQL shows and takes a TIMESTAMP.
        time_zone: Option<String>,
        events: BranchEvents,
    },
    /// The branch was rolled back before it committed locally.
    Guard,
}

/// Whether a branch holds events, which are rolled back with its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BranchEvents {
    #[default]
    None,
    Held,
}

/// The statement that puts in a branch's undo log, and its arguments.
pub(crate) fn insert<DB: Backend>(
    xid: &Xid,
    branch: u64,
    log: &[u8],
    events: BranchEvents,
) -> (String, DB::Arguments) {
    let text = insert_text::<DB>("INSERT INTO", "");
    (text, row::<DB>(xid.as_str(), branch, log, NORMAL, events))
}

/// The statement that puts in the undo logs of several branches that hold no events. Adds its
/// arguments to those.
pub(crate) fn insert_many<'l, DB: Backend>(
    arguments: &mut DB::Arguments,
    logs: impl Iterator<Item = (&'l Xid, u64, &'l [u8])>,
) -> String {
    let mut rows = Vec::new();
    for (at, (xid, branch, log)) in logs.enumerate() {
        rows.push(values_text::<DB>(at));
        bind_row::<DB>(arguments, xid.as_str(), branch, log, NORMAL, BranchEvents::None);
    }
    format!("INSERT INTO {COLUMNS} VALUES {}", rows.join(", "))
}

/// The statement that puts in the undo log of a branch which the statement itself makes: up to its
/// values, and these. Takes, behind so many other arguments, the branch's id and its XID, then what
/// the log takes.
pub(crate) fn insert_composed<DB: Backend>(log: &str, first: usize) -> (String, String) {
    let [branch, xid] = [first, first + 1].map(placeholder::<DB>);
    let context = context_text::<DB>(&format!("'{CONTEXT}'"));
    let values = format!("{branch}, {xid}, {context}, {log}, {NORMAL}");
    (format!("INSERT INTO {COLUMNS}"), values)
}

/// The statement that adds terms to the log of a row of [`insert_composed`]: up to its new value,
/// that, and the rest. Takes the arguments of that function's statement.
pub(crate) fn complete_composed<DB: Backend>(terms: &[String], first: usize) -> [String; 3] {
    let [branch, xid] = [first, first + 1].map(placeholder::<DB>);
    let mut whole = vec!["undo_log.rollback_info".to_owned()];
    whole.extend_from_slice(terms);
    let which = format!("WHERE xid = {xid} AND branch_id = {branch}");
    ["UPDATE undo_log SET rollback_info =".to_owned(), DB::utf8(&DB::concat(&whole)), which]
}

/// Binds the branch's id and its XID for [`insert_composed`] and [`complete_composed`].
pub(crate) fn bind_composed<DB: Backend>(arguments: &mut DB::Arguments, xid: &Xid, branch: u64) {
    DB::bind_number(arguments, signed(branch));
    DB::bind_text(arguments, xid.as_str());
}

/// Whether an error of [`insert`] means that a row is there: the guard, for no branch commits
/// twice.
pub(crate) fn is_guard_conflict(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Puts in a guard row unless a row is there. Answers whether it did.
///
/// By row count and not by the class of an error, which differs from driver to driver.
pub(crate) async fn insert_guard<DB: Backend>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<bool, sqlx::Error> {
    let text = match DB::DIALECT {
        Dialect::MySql => insert_text::<DB>("INSERT IGNORE INTO", ""),
        Dialect::Postgres | Dialect::Sqlite => {
            insert_text::<DB>("INSERT INTO", " ON CONFLICT DO NOTHING")
        }
    };
    let inserted =
        execute::<DB>(connection, text, row::<DB>(xid, branch, b"", GUARD, BranchEvents::None))
            .await?;
    Ok(inserted == 1)
}

const COLUMNS: &str = "undo_log (branch_id, xid, context, rollback_info, log_status)";

fn insert_text<DB: Backend>(verb: &str, tail: &str) -> String {
    format!("{verb} {COLUMNS} VALUES {}{tail}", values_text::<DB>(0))
}

/// The values of one of several rows.
fn values_text<DB: Backend>(at: usize) -> String {
    let [a, b, c, d, e] = std::array::from_fn(|column| placeholder::<DB>(5 * at + column));
    format!("({a}, {b}, {}, {d}, {e})", context_text::<DB>(&c))
}

/// The `context` of a row.
fn context_text<DB: Backend>(context: &str) -> String {
    match DB::DIALECT {
        // The server itself adds the zone in which the images were read, so no call asks for it.
        Dialect::MySql => format!("CONCAT({context}, '{TIME_ZONE}', @@SESSION.time_zone)"),
        Dialect::Postgres | Dialect::Sqlite => context.to_owned(),
    }
}

fn row<DB: Backend>(
    xid: &str,
    branch: u64,
    log: &[u8],
    status: i64,
    events: BranchEvents,
) -> DB::Arguments {
    let mut arguments = DB::Arguments::default();
    bind_row::<DB>(&mut arguments, xid, branch, log, status, events);
    arguments
}

fn bind_row<DB: Backend>(
    arguments: &mut DB::Arguments,
    xid: &str,
    branch: u64,
    log: &[u8],
    status: i64,
    events: BranchEvents,
) {
    DB::bind_number(arguments, signed(branch));
    DB::bind_text(arguments, xid);
    match events {
        BranchEvents::None => DB::bind_text(arguments, CONTEXT),
        BranchEvents::Held => DB::bind_text(arguments, &format!("{CONTEXT}{HOLDS_EVENTS}")),
    }
    DB::bind_bytes(arguments, log);
    DB::bind_number(arguments, status);
}

/// Reads and locks a branch's undo row.
pub(crate) async fn find<DB: Backend>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<Option<Found>, sqlx::Error> {
    let [a, b] = placeholders::<DB, 2>();
    let lock = match DB::DIALECT {
        Dialect::Postgres | Dialect::MySql => " FOR UPDATE",
        Dialect::Sqlite => "",
    };
    let text = format!(
        "SELECT rollback_info, {}, context FROM undo_log WHERE xid = {a} AND branch_id = {b}{lock}",
        DB::as_number("log_status")
    );
    let found = rows::<DB>(connection, text, name::<DB>(xid, branch)).await?;
    let Some(row) = found.first() else { return Ok(None) };
    match DB::number(row, 1)? {
        Some(NORMAL) => {
            let context = DB::text(row, 2)?.unwrap_or_default();
            let time_zone = context.split_once(TIME_ZONE).map(|(_, zone)| zone.to_owned());
            let holds = context.contains(HOLDS_EVENTS);
            let events = if holds { BranchEvents::Held } else { BranchEvents::None };
            Ok(Some(Found::Log { log: DB::bytes(row, 0)?, time_zone, events }))
        }
        Some(_) | None => Ok(Some(Found::Guard)),
    }
}

/// Sets the session to the time zone that a log was written in.
pub(crate) async fn set_time_zone<DB: Backend>(
    connection: &mut DB::Connection,
    time_zone: &str,
) -> Result<(), sqlx::Error> {
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, time_zone);
    execute::<DB>(connection, "SET time_zone = ?".to_owned(), arguments).await?;
    Ok(())
}

/// Removes a branch's undo row.
pub(crate) async fn delete<DB: Backend>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<(), sqlx::Error> {
    let [a, b] = placeholders::<DB, 2>();
    let text = format!("DELETE FROM undo_log WHERE xid = {a} AND branch_id = {b}");
    execute::<DB>(connection, text, name::<DB>(xid, branch)).await?;
    Ok(())
}

fn name<DB: Backend>(xid: &str, branch: u64) -> DB::Arguments {
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, xid);
    DB::bind_number(&mut arguments, signed(branch));
    arguments
}

/// Removes the undo rows of many branches, at most [`DELETE_MAX`], in one statement.
pub(crate) async fn delete_many<DB: Backend>(
    connection: &mut DB::Connection,
    branches: &[(&str, u64)],
) -> Result<(), sqlx::Error> {
    delete_named::<DB>(connection, "undo_log", branches).await
}

/// Removes the rows of many branches, at most [`DELETE_MAX`], from a table that names them as
/// `undo_log` does.
///
/// The number of rows named is rounded up to a power of two by naming the last one again, so that
/// few texts serve all sizes and statement caches stay small.
pub(crate) async fn delete_named<DB: Backend>(
    connection: &mut DB::Connection,
    table: &str,
    branches: &[(&str, u64)],
) -> Result<(), sqlx::Error> {
    let Some(last) = branches.last() else { return Ok(()) };
    let named = branches.len().next_power_of_two();
    let mut arguments = DB::Arguments::default();
    for (xid, branch) in branches.iter().chain(std::iter::repeat(last)).take(named) {
        DB::bind_text(&mut arguments, xid);
        DB::bind_number(&mut arguments, signed(*branch));
    }
    let pair = |pair: usize| {
        format!("({}, {})", placeholder::<DB>(2 * pair), placeholder::<DB>(2 * pair + 1))
    };
    let pairs = (0..named).map(pair).collect::<Vec<_>>().join(", ");
    // SQLite takes a list of tuples only as VALUES.
    let values = if DB::DIALECT == Dialect::Sqlite { "VALUES " } else { "" };
    let text = format!("DELETE FROM {table} WHERE (xid, branch_id) IN ({values}{pairs})");
    execute::<DB>(connection, text, arguments).await?;
    Ok(())
}

/// Removes guard rows older than a day, at most [`DELETE_MAX`] of them. A local transaction that is
/// open for longer than that has lost its connection many times over.
pub(crate) async fn delete_old_guards<DB: Backend>(
    connection: &mut DB::Connection,
) -> Result<u64, sqlx::Error> {
    let text = match DB::DIALECT {
        // PostgreSQL has no LIMIT on DELETE, so a query with a LIMIT picks the rows.
        Dialect::Postgres => format!(
            "DELETE FROM undo_log WHERE ctid = ANY (ARRAY (SELECT ctid FROM undo_log \
             WHERE log_status = {GUARD} AND log_created < CURRENT_TIMESTAMP - INTERVAL '1 day' \
             LIMIT {DELETE_MAX}))"
        ),
        Dialect::MySql => format!(
            "DELETE FROM undo_log WHERE log_status = {GUARD} \
             AND log_created < CURRENT_TIMESTAMP(6) - INTERVAL 1 DAY LIMIT {DELETE_MAX}"
        ),
        Dialect::Sqlite => format!(
            "DELETE FROM undo_log WHERE (xid, branch_id) IN (SELECT xid, branch_id FROM undo_log \
             WHERE log_status = {GUARD} \
             AND log_created < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day') LIMIT {DELETE_MAX})"
        ),
    };
    execute::<DB>(connection, text, DB::Arguments::default()).await
}

fn placeholders<DB: Backend, const N: usize>() -> [String; N] {
    std::array::from_fn(placeholder::<DB>)
}

fn placeholder<DB: Backend>(index: usize) -> String {
    match DB::DIALECT {
        Dialect::Postgres => format!("${}", index + 1),
        Dialect::Sqlite => format!("?{}", index + 1),
        Dialect::MySql => "?".to_owned(),
    }
}

/// A branch id as the databases hold it. The coordinator refuses ids of more than 63 bits.
fn signed(branch: u64) -> i64 {
    i64::try_from(branch).unwrap_or(i64::MAX)
}
