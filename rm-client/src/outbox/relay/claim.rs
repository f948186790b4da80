//! Claims events: searches, locks, keeps the order of each key, writes the claim.
//!
//! An event is a candidate only if no earlier event of its key is held, parked or waiting for its
//! next attempt. An event that another transaction has locked is skipped, and so is the rest of its
//! key.
//!
//! MySQL: the search reads uncommitted rows on purpose. It sees the event of a running writer,
//! which is locked and so not claimed: later events of its key wait for it, and other keys go on.
//! If most candidates are locked, another search follows behind them. Such a search sees no single
//! moment. An earlier event that becomes a candidate behind its back, such as a parked one that is
//! requeued, is looked for once more when the candidates are locked.

use std::collections::HashMap;
use std::time::Duration;

use handfast_rm_core::relay::in_order;
use sqlx::pool::PoolConnection;

use super::super::error::OutboxError;
use super::super::event::Event;
use super::super::query::{Query, number_of, text_of};
use super::super::table::explain;
use crate::at::{AtDatabase, BoundQuery, Dialect};

/// The most held events that one round releases (BOUNDED).
const RELEASE_MAX: i64 = 1_000;

/// The most searches of one claim, each behind the candidates of the one before (BOUNDED).
const SEARCHES_MAX: usize = 16;

/// The parameters of a claim.
pub(super) struct ClaimQuery<'a> {
    pub(super) relay: &'a str,
    /// Written into the rows: only the relay that made this very claim marks them.
    pub(super) token: String,
    pub(super) lanes: &'a [i64],
    pub(super) horizon: i64,
    /// Events up to this number are passed over, and so are the later ones of their keys.
    pub(super) after: i64,
    pub(super) batch: u32,
    pub(super) lease: Duration,
}

/// The result of a claim.
pub(super) struct ClaimResult {
    pub(super) events: Vec<Claimed>,
    /// The number up to which events were searched, or `None` if the end was reached.
    pub(super) up_to: Option<i64>,
}

/// An event that this relay may publish.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) seq: i64,
    pub(super) key_hash: i64,
    pub(super) attempts: i64,
    /// The event, or the reason why the row is unreadable. Such a row is treated like an event that
    /// the broker refuses.
    pub(super) event: Result<Event, String>,
}

/// Releases events whose global has committed: their branch has no undo row any more (HELD-UNDO).
pub(super) async fn release_held<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
    lanes: &[i64],
) -> Result<(), OutboxError> {
    // Uncommitted rows must not be read here: an event is inserted before the undo row of its
    // branch.
    isolate::<DB>(connection, "READ COMMITTED").await?;
    let seq = DB::as_number("o.seq");
    let query = Query::<DB>::new(&format!("SELECT {seq} FROM event_outbox o WHERE o.lane IN "));
    let query = query.numbers(lanes).sql(
        " AND o.status = 0 AND NOT EXISTS (SELECT 1 FROM undo_log u WHERE u.xid = o.xid \
         AND u.branch_id = o.branch_id) ORDER BY o.seq LIMIT ",
    );
    let free = query.number(RELEASE_MAX).rows(connection).await.map_err(explain::<DB>)?;
    let free: Vec<i64> =
        free.iter().map(|row| number_of::<DB>(row, 0)).collect::<Result<_, _>>()?;
    if !free.is_empty() {
        // The read has locked nothing, so the state is compared again.
        let query = Query::<DB>::new("UPDATE event_outbox SET status = 1 WHERE seq IN ");
        query.numbers(&free).sql(" AND status = 0").execute(connection).await?;
    }
    Ok(())
}

impl ClaimQuery<'_> {
    /// Claims the events that may be published, in order.
    pub(super) async fn take<DB: AtDatabase>(
        &self,
        connection: &mut PoolConnection<DB>,
    ) -> Result<ClaimResult, OutboxError> {
        let now_ms = now_ms::<DB>(connection).await?;
        let batch = self.batch as usize;
        let (mut events, mut after) = (Vec::new(), self.after);
        for _ in 0..SEARCHES_MAX {
            let rows_max = batch - events.len();
            // MySQL takes the level for the next transaction alone, which this search is.
            isolate::<DB>(connection, "READ UNCOMMITTED").await?;
            let candidates = self.find_candidates::<DB>(connection, now_ms, after, rows_max).await;
            let candidates = candidates.map_err(explain::<DB>)?;
            let Some((last, _)) = candidates.last() else {
                return Ok(ClaimResult { events, up_to: None });
            };
            after = *last;
            let Some(taken) = self.claim::<DB>(connection, &candidates).await? else {
                return Ok(ClaimResult { events, up_to: None });
            };
            events.extend(taken);
            if candidates.len() < rows_max {
                return Ok(ClaimResult { events, up_to: None });
            }
            // The batch is at least half full: the next round searches from the start.
            if events.len() * 2 >= batch {
                break;
            }
        }
        Ok(ClaimResult { events, up_to: Some(after) })
    }

    /// Claims those candidates that no other transaction has locked. Returns `None` if a lane
    /// belongs to another relay meanwhile.
    async fn claim<DB: AtDatabase>(
        &self,
        connection: &mut PoolConnection<DB>,
        candidates: &[(i64, i64)],
    ) -> Result<Option<Vec<Claimed>>, OutboxError> {
        isolate::<DB>(connection, "READ COMMITTED").await?;
        let mut local = DB::begin_on(connection).await?;
        let mut locked = lock::<DB>(&mut local, candidates).await?;
        let taken = in_order(candidates, |seq| locked.contains_key(&seq));
        let is_ours = taken.is_empty() || self.write::<DB>(&mut local, &taken).await?;
        // A lane that is lost takes the whole claim with it, so that no event of it is marked.
        if taken.is_empty() || !is_ours {
            local.rollback().await?;
            return Ok(is_ours.then(Vec::new));
        }
        local.commit().await?;
        Ok(Some(taken.iter().filter_map(|seq| locked.remove(seq)).collect()))
    }

    /// Finds candidates behind a number. Returns the number and key of each event. All rows are
    /// compared with one moment: if an event became due during the search, later ones of its key
    /// could pass it.
    async fn find_candidates<DB: AtDatabase>(
        &self,
        connection: &mut DB::Connection,
        now_ms: i64,
        after: i64,
        rows_max: usize,
    ) -> Result<Vec<(i64, i64)>, sqlx::Error> {
        let (seq, key) = (DB::as_number("e.seq"), DB::as_number("e.key_hash"));
        let query =
            Query::<DB>::new(&format!("SELECT {seq}, {key} FROM event_outbox e WHERE e.lane IN "));
        let query = query.numbers(self.lanes).sql(" AND e.status = 1 AND e.seq > ").number(after);
        let query = query.sql(" AND e.seq <= ").number(self.horizon);
        let query = query.sql(" AND e.next_at_ms <= ").number(now_ms);
        let query = query.sql(
            " AND NOT EXISTS (SELECT 1 FROM event_outbox p WHERE p.key_hash = e.key_hash \
             AND p.seq < e.seq AND p.status IN (0, 1, 4) \
             AND (p.status <> 1 OR p.next_at_ms > ",
        );
        let query = query.number(now_ms).sql(" OR p.seq <= ").number(after);
        let query = query.sql(")) ORDER BY e.seq LIMIT ");
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let found = query.number(rows_max).rows(connection).await?;
        found.iter().map(|row| Ok((number_of::<DB>(row, 0)?, number_of::<DB>(row, 1)?))).collect()
    }

    /// Writes the claim, and returns whether all its lanes still belong to this relay.
    async fn write<DB: AtDatabase>(
        &self,
        connection: &mut DB::Connection,
        taken: &[i64],
    ) -> Result<bool, sqlx::Error> {
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX >> 1);
        let query = Query::<DB>::new("UPDATE event_outbox SET claimed_by = ").text(&self.token);
        let query = query.sql(", claimed_until_ms = ").now().sql(" + ").number(lease_ms);
        let query = query.sql(" WHERE seq IN ").numbers(taken);
        let query = query.sql(" AND lane IN (SELECT lane FROM event_lane WHERE owner = ");
        let query = query.text(self.relay).sql(" AND until_ms > ").now().sql(")");
        Ok(query.execute(connection).await? == taken.len() as u64)
    }
}

/// Returns the time of the database's clock, in milliseconds.
async fn now_ms<DB: AtDatabase>(connection: &mut DB::Connection) -> Result<i64, sqlx::Error> {
    let found = Query::<DB>::new("SELECT ").now().rows(connection).await?;
    number_of::<DB>(found.first().ok_or(sqlx::Error::RowNotFound)?, 0)
}

/// Sets the isolation level of the next transaction on MySQL, where the search depends on it.
async fn isolate<DB: AtDatabase>(
    connection: &mut DB::Connection,
    level: &str,
) -> Result<(), sqlx::Error> {
    if DB::DIALECT == Dialect::MySql {
        let text = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        DB::steps(connection, BoundQuery::plain(text)).await?;
    }
    Ok(())
}

/// Locks and reads the candidates that are committed, that no other transaction has locked, and, on
/// MySQL, that have no earlier event of their key which is not a candidate.
async fn lock<DB: AtDatabase>(
    connection: &mut DB::Connection,
    candidates: &[(i64, i64)],
) -> Result<HashMap<i64, Claimed>, sqlx::Error> {
    let numbers: Vec<i64> = candidates.iter().map(|(seq, _)| *seq).collect();
    let columns = ["e.seq", "e.key_hash", "e.attempts"].map(DB::as_number).join(", ");
    let query = Query::<DB>::new(&format!(
        "SELECT {columns}, e.event_id, e.topic, e.aggregate_key, e.headers, e.payload \
         FROM event_outbox e WHERE e.seq IN "
    ));
    let mut query = query.numbers(&numbers).sql(" AND e.status = 1");
    if DB::DIALECT == Dialect::MySql {
        query = query.sql(
            " AND NOT EXISTS (SELECT 1 FROM event_outbox p WHERE p.key_hash = e.key_hash \
             AND p.seq < e.seq AND p.status IN (0, 1, 4) AND p.seq NOT IN ",
        );
        query = query.numbers(&numbers).sql(")");
    }
    if DB::DIALECT != Dialect::Sqlite {
        query = query.sql(" FOR UPDATE SKIP LOCKED");
    }
    let found = query.rows(connection).await?;
    found.iter().map(|row| Ok((number_of::<DB>(row, 0)?, claimed::<DB>(row)?))).collect()
}

fn claimed<DB: AtDatabase>(row: &DB::Row) -> Result<Claimed, sqlx::Error> {
    let (topic, key) = (text_of::<DB>(row, 4)?, text_of::<DB>(row, 5)?);
    let (id, headers) = (text_of::<DB>(row, 3)?, text_of::<DB>(row, 6)?);
    let event = Event::restored(&id, topic, key, &headers, DB::bytes(row, 7)?);
    Ok(Claimed {
        seq: number_of::<DB>(row, 0)?,
        key_hash: number_of::<DB>(row, 1)?,
        attempts: number_of::<DB>(row, 2)?,
        event: event.map_err(|error| error.to_string()),
    })
}
