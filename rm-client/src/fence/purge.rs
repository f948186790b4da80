//! Removes the rows of branches that are finished.
//!
//! Only final rows go: a tried branch is still to be confirmed or cancelled, however old it is.

use std::time::Duration;

use handfast_rm_core::fence::FenceState;
use sqlx::Pool;

use super::error::FenceError;
use super::lent::Lent;
use super::table::{explain, now};
use crate::at::{AtDatabase, Backend, Dialect, execute, rows};

/// The most rows that one DELETE removes, so that other transactions wait only briefly.
const BATCH_MAX: u64 = 500;
/// How often one purge may get in the way of others (BOUNDED).
const CONFLICTS_MAX: u32 = 20;
/// The pause before the next attempt, multiplied by the number of conflicts so far. The transaction
/// in the way may take as long as a sync of a slow disk to end.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// The largest age that is used. Rows are never kept for so long, and much larger ages would
/// overflow the databases' calendars.
const AGE_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Removes rows of branches that were confirmed, cancelled or barred longer ago than `older_than`,
/// by the database's clock, in batches, until none is left or `rows_max` are gone. Returns how many
/// it removed. Several purges may run at the same time, and while fences are in use.
///
/// `older_than` must be longer than any client may repeat an operation: a repeated cancel that
/// finds no row bars the branch again, which is harmless, but a repeated confirm is answered with
/// [`FenceError::NotTried`], and a late try runs.
///
/// ```
/// use std::time::Duration;
///
/// async fn sweep(pool: &sqlx::SqlitePool) -> Result<u64, handfast::fence::FenceError> {
///     handfast::fence::purge(pool, Duration::from_secs(7 * 86_400), 100_000).await
/// }
/// ```
///
/// # Errors
/// The database's error; batches that were removed before stay removed.
pub async fn purge<DB: AtDatabase>(
    pool: &Pool<DB>,
    older_than: Duration,
    rows_max: u64,
) -> Result<u64, FenceError> {
    let mut connection = Lent::of(pool).await?;
    let (mut removed, mut conflicts) = (0, 0);
    while removed < rows_max {
        let batch = BATCH_MAX.min(rows_max - removed);
        let gone = match DB::DIALECT {
            Dialect::MySql => remove_by_name::<DB>(&mut connection, older_than, batch).await,
            Dialect::Postgres | Dialect::Sqlite => {
                remove::<DB>(&mut connection, older_than, batch).await
            }
        };
        match gone.map_err(explain::<DB>) {
            Ok(0) => break,
            Ok(rows) => removed += rows,
            // The rows are there for the next attempt.
            Err(FenceError::Conflict { .. }) if conflicts < CONFLICTS_MAX => {
                conflicts += 1;
                tokio::time::sleep(CONFLICT_PAUSE * conflicts).await;
            }
            Err(error) => return Err(error),
        }
    }
    connection.end();
    Ok(removed)
}

/// One DELETE, which picks the rows itself.
async fn remove<DB: Backend>(
    connection: &mut DB::Connection,
    older_than: Duration,
    batch: u64,
) -> Result<u64, sqlx::Error> {
    let old = old_rows::<DB>();
    let text = match DB::DIALECT {
        // Rows that an operation or another purge has locked are left to the next purge.
        Dialect::Postgres => format!(
            "DELETE FROM branch_fence WHERE ctid = ANY (ARRAY (SELECT ctid {old} LIMIT {batch} \
             FOR UPDATE SKIP LOCKED))"
        ),
        Dialect::MySql | Dialect::Sqlite => format!(
            "DELETE FROM branch_fence WHERE (xid, branch_id) IN \
             (SELECT xid, branch_id {old} LIMIT {batch})"
        ),
    };
    execute::<DB>(connection, text, age::<DB>(older_than)).await
}

/// MySQL: reads the names without a lock and deletes by them. A DELETE that searched by time would
/// lock every row and gap on its way.
async fn remove_by_name<DB: Backend>(
    connection: &mut DB::Connection,
    older_than: Duration,
    batch: u64,
) -> Result<u64, sqlx::Error> {
    let text =
        format!("SELECT xid, {} {} LIMIT {batch}", DB::as_number("branch_id"), old_rows::<DB>());
    let found = rows::<DB>(connection, text, age::<DB>(older_than)).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let mut arguments = DB::Arguments::default();
    for row in &found {
        DB::bind_text(&mut arguments, &DB::text(row, 0)?.unwrap_or_default());
        DB::bind_number(&mut arguments, DB::number(row, 1)?.unwrap_or_default());
    }
    let names = vec!["(?, ?)"; found.len()].join(", ");
    let finished = final_states();
    // Since the read, a branch of the same name may have been tried again.
    let text = format!(
        "DELETE FROM branch_fence WHERE (xid, branch_id) IN ({names}) AND status IN ({finished})"
    );
    execute::<DB>(connection, text, arguments).await
}

/// Selects final rows, the oldest first. It compares both times: one has the index, and the other
/// is the one that counts.
fn old_rows<DB: Backend>() -> String {
    let then = then::<DB>();
    format!(
        "FROM branch_fence WHERE created_at <= {then} AND modified_at <= {then} \
         AND status IN ({}) ORDER BY created_at",
        final_states()
    )
}

fn then<DB: Backend>() -> String {
    let now = now::<DB>();
    match DB::DIALECT {
        Dialect::Postgres => format!("{now} - $1 * INTERVAL '1 second'"),
        Dialect::MySql => format!("{now} - INTERVAL ? SECOND"),
        Dialect::Sqlite => {
            "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || ? || ' seconds')".to_owned()
        }
    }
}

/// The age, once for each time that [`then`] stands in a text.
fn age<DB: Backend>(older_than: Duration) -> DB::Arguments {
    let seconds = older_than.as_secs().min(AGE_SECONDS_MAX).cast_signed();
    let times = if DB::DIALECT == Dialect::Postgres { 1 } else { 2 };
    let mut arguments = DB::Arguments::default();
    for _ in 0..times {
        DB::bind_number(&mut arguments, seconds);
    }
    arguments
}

fn final_states() -> String {
    let states = FenceState::ALL.into_iter().filter(|state| state.is_final());
    states.map(|state| state.number().to_string()).collect::<Vec<_>>().join(", ")
}
