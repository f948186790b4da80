//! Operations on events by hand: list, requeue, skip, purge.

use std::time::Duration;

use sqlx::Pool;

use super::error::OutboxError;
use super::event::EventId;
use super::query::{Query, number_of, text_of};
use super::table::{EventState, explain};
use crate::at::{AtDatabase, Dialect};

/// The most rows that one DELETE removes, so that other transactions wait only briefly.
const BATCH_MAX: u64 = 500;

/// An event as operators look at it, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its number, which orders the events of a key.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// The key, which names the aggregate.
    pub key: String,
    /// Its state.
    pub state: EventState,
    /// How often the broker has refused it.
    pub attempts: i64,
    /// The broker's last error.
    pub last_error: Option<String>,
    /// The global whose branch emitted it.
    pub xid: Option<String>,
    /// The claim token of the relay that has claimed it.
    pub claimed_by: Option<String>,
    /// How long ago it was emitted, in milliseconds by the database's clock.
    pub age_ms: i64,
}

/// How far the relays of a database are behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events whose global is not decided.
    pub held: i64,
    /// Events to be published.
    pub new: i64,
    /// Events that wait for an operator.
    pub parked: i64,
    /// The age of the oldest event to be published, in milliseconds; 0 if there is none.
    pub oldest_new_ms: i64,
    /// Relays with a lease.
    pub relays: i64,
}

/// Lists the events in a state, or all of them, in order, `rows_max` at most.
///
/// # Errors
/// The error of the database.
pub async fn list<DB: AtDatabase>(
    pool: &Pool<DB>,
    state: Option<EventState>,
    rows_max: u32,
) -> Result<Vec<EventRow>, OutboxError> {
    let numbers = ["seq", "status", "attempts"].map(DB::as_number).join(", ");
    let query = Query::<DB>::new(&format!(
        "SELECT {numbers}, event_id, topic, aggregate_key, last_error, xid, claimed_by, "
    ));
    let query = query.now().sql(" - created_at_ms FROM event_outbox");
    let query = match state {
        None => query,
        Some(state) => query.sql(&format!(" WHERE status = {}", state.number())),
    };
    let mut connection = pool.acquire().await?;
    let query = query.sql(" ORDER BY seq LIMIT ").number(i64::from(rows_max));
    let found = query.rows(&mut connection).await.map_err(explain::<DB>)?;
    Ok(found.iter().map(event_row::<DB>).collect::<Result<_, _>>()?)
}

fn event_row<DB: AtDatabase>(row: &DB::Row) -> Result<EventRow, sqlx::Error> {
    Ok(EventRow {
        seq: number_of::<DB>(row, 0)?,
        id: text_of::<DB>(row, 3)?,
        topic: text_of::<DB>(row, 4)?,
        key: text_of::<DB>(row, 5)?,
        state: EventState::from_number(number_of::<DB>(row, 1)?)?,
        attempts: number_of::<DB>(row, 2)?,
        last_error: DB::text(row, 6)?,
        xid: DB::text(row, 7)?,
        claimed_by: DB::text(row, 8)?,
        age_ms: number_of::<DB>(row, 9)?,
    })
}

/// Makes the relay publish a parked event after all, and then continue with its key.
///
/// # Errors
/// [`OutboxError::WrongState`] if the event is not parked, or the error of the database.
pub async fn requeue<DB: AtDatabase>(pool: &Pool<DB>, id: EventId) -> Result<(), OutboxError> {
    requeue_on::<DB>(&mut *pool.acquire().await?, id).await
}

/// The same as [`requeue`], on a given connection.
pub(super) async fn requeue_on<DB: AtDatabase>(
    connection: &mut DB::Connection,
    id: EventId,
) -> Result<(), OutboxError> {
    let query = Query::<DB>::new(
        "UPDATE event_outbox SET status = 1, attempts = 0, next_at_ms = 0 WHERE status = 4 \
         AND event_id = ",
    );
    change(connection, query, id, "parked").await
}

/// Gives up a parked event: it is never published, and the relay continues with its key.
///
/// # Errors
/// [`OutboxError::WrongState`] if the event is not parked, or the error of the database.
pub async fn skip<DB: AtDatabase>(pool: &Pool<DB>, id: EventId) -> Result<(), OutboxError> {
    skip_on::<DB>(&mut *pool.acquire().await?, id).await
}

/// The same as [`skip`], on a given connection.
pub(super) async fn skip_on<DB: AtDatabase>(
    connection: &mut DB::Connection,
    id: EventId,
) -> Result<(), OutboxError> {
    let query = Query::<DB>::new("UPDATE event_outbox SET status = 5, finished_at_ms = ").now();
    change(connection, query.sql(" WHERE status = 4 AND event_id = "), id, "parked").await
}

/// Records that the consumer of an event has reported its effect. Nothing waits for this record. It
/// is for operators, and for services whose consumers answer.
///
/// # Errors
/// [`OutboxError::WrongState`] if the event is not published, or the error of the database.
pub async fn mark_processed<DB: AtDatabase>(
    pool: &Pool<DB>,
    id: EventId,
) -> Result<(), OutboxError> {
    let query = Query::<DB>::new("UPDATE event_outbox SET status = 3, finished_at_ms = ").now();
    let query = query.sql(" WHERE status IN (2, 3) AND event_id = ");
    change(&mut *pool.acquire().await?, query, id, "published").await
}

async fn change<DB: AtDatabase>(
    connection: &mut DB::Connection,
    query: Query<DB>,
    id: EventId,
    expected: &'static str,
) -> Result<(), OutboxError> {
    let changed = query.text(&id.to_string()).execute(connection).await;
    match changed.map_err(explain::<DB>)? {
        0 => Err(OutboxError::WrongState { id, expected }),
        _ => Ok(()),
    }
}

/// How far the relays of a database are behind.
///
/// # Errors
/// The error of the database.
pub async fn lag<DB: AtDatabase>(pool: &Pool<DB>) -> Result<Lag, OutboxError> {
    let mut connection = pool.acquire().await?;
    let count = DB::as_number("COUNT(*)");
    let status = DB::as_number("status");
    let oldest = DB::as_number("MIN(created_at_ms)");
    let query = Query::<DB>::new(&format!("SELECT {status}, {count}, ")).now();
    let query = query
        .sql(&format!(" - {oldest} FROM event_outbox WHERE status IN (0, 1, 4) GROUP BY status"));
    let found = query.rows(&mut connection).await.map_err(explain::<DB>)?;
    let mut lag = Lag::default();
    for row in &found {
        let count = number_of::<DB>(row, 1)?;
        match EventState::from_number(number_of::<DB>(row, 0)?)? {
            EventState::Held => lag.held = count,
            EventState::Parked => lag.parked = count,
            EventState::New => {
                lag.new = count;
                lag.oldest_new_ms = number_of::<DB>(row, 2)?.max(0);
            }
            EventState::Published | EventState::Processed | EventState::Skipped => {}
        }
    }
    let query = Query::<DB>::new(&format!("SELECT {count} FROM event_relay WHERE until_ms > "));
    let relays = query.now().rows(&mut connection).await.map_err(explain::<DB>)?;
    lag.relays = relays.first().map(|row| number_of::<DB>(row, 0)).transpose()?.unwrap_or(0);
    Ok(lag)
}

/// Removes events that were published, processed or skipped longer ago than `older_than`, in
/// batches, `rows_max` at most. Returns how many it removed. Relays do this by themselves.
///
/// # Errors
/// The error of the database. Batches that were removed before it stay removed.
pub async fn purge<DB: AtDatabase>(
    pool: &Pool<DB>,
    older_than: Duration,
    rows_max: u64,
) -> Result<u64, OutboxError> {
    let mut connection = pool.acquire().await?;
    purge_on::<DB>(&mut connection, older_than, rows_max).await
}

/// The same as [`purge`], on a given connection.
pub(super) async fn purge_on<DB: AtDatabase>(
    connection: &mut DB::Connection,
    older_than: Duration,
    rows_max: u64,
) -> Result<u64, OutboxError> {
    let old = " FROM event_outbox WHERE status IN (2, 3, 5) AND finished_at_ms <= ";
    let names = ["event_outbox", "seq", old, "finished_at_ms"];
    remove_old::<DB>(connection, names, older_than, rows_max).await
}

/// Removes rows of the inbox that are older than `older_than`, in batches, `rows_max` at most.
/// Returns how many it removed. `older_than` must be longer than the time in which a broker may
/// deliver an event again: an event that is delivered later takes effect again.
///
/// # Errors
/// The error of the database. Batches that were removed before it stay removed.
pub async fn purge_inbox<DB: AtDatabase>(
    pool: &Pool<DB>,
    older_than: Duration,
    rows_max: u64,
) -> Result<u64, OutboxError> {
    let old = " FROM event_inbox WHERE received_at_ms <= ";
    let names = ["event_inbox", "consumer, event_id", old, "received_at_ms"];
    let mut connection = pool.acquire().await?;
    remove_old::<DB>(&mut connection, names, older_than, rows_max).await
}

async fn remove_old<DB: AtDatabase>(
    connection: &mut DB::Connection,
    [table, key, old, order]: [&str; 4],
    older_than: Duration,
    rows_max: u64,
) -> Result<u64, OutboxError> {
    let age_ms = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX >> 1);
    let mut removed = 0;
    while removed < rows_max {
        let batch = i64::try_from(BATCH_MAX.min(rows_max - removed)).unwrap_or(1);
        let query = match DB::DIALECT {
            // In the order of the index, so that two processes that do this wait for each other
            // without a deadlock.
            Dialect::MySql => Query::<DB>::new("DELETE").sql(old).now(),
            Dialect::Postgres => Query::<DB>::new(&format!(
                "DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT ctid{old}"
            ))
            .now(),
            Dialect::Sqlite => {
                let text = format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key}{old}");
                Query::<DB>::new(&text).now()
            }
        };
        let query = query.sql(" - ").number(age_ms);
        let query = query.sql(&format!(" ORDER BY {order} LIMIT ")).number(batch);
        let query = query.sql(match DB::DIALECT {
            Dialect::MySql => "",
            Dialect::Postgres => " FOR UPDATE SKIP LOCKED))",
            Dialect::Sqlite => ")",
        });
        match query.execute(connection).await.map_err(explain::<DB>)? {
            0 => break,
            rows => removed += rows,
        }
    }
    Ok(removed)
}
