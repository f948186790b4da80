//! The table `event_outbox`: the states of an event, and the INSERT of one.

use std::borrow::Cow;
use std::fmt;

use super::error::OutboxError;
use super::event::Event;
use super::query::Query;
use crate::at::{AtDatabase, Backend, Dialect};
use crate::trace;
use crate::xid::Xid;

/// The state of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventState {
    /// The event's global transaction is not decided.
    Held,
    /// The event is to be published.
    New,
    /// The broker has confirmed the event.
    Published,
    /// The consumer has reported the event's effect.
    Processed,
    /// The broker refused the event too often. It waits for an operator, and so do the later events
    /// of its key.
    Parked,
    /// An operator has decided that the event is not published.
    Skipped,
}

impl EventState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Held, Self::New, Self::Published, Self::Processed, Self::Parked, Self::Skipped];

    /// The number of the state in the table.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Held => 0,
            Self::New => 1,
            Self::Published => 2,
            Self::Processed => 3,
            Self::Parked => 4,
            Self::Skipped => 5,
        }
    }

    pub(super) fn from_number(number: i64) -> Result<Self, sqlx::Error> {
        let known = Self::ALL.into_iter().find(|state| state.number() == number);
        known.ok_or_else(|| sqlx::Error::Protocol(format!("event_outbox holds status {number}")))
    }
}

impl fmt::Display for EventState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::New => "new",
            Self::Published => "published",
            Self::Processed => "processed",
            Self::Parked => "parked",
            Self::Skipped => "skipped",
        })
    }
}

/// The channel that a commit with an event notifies on PostgreSQL.
pub(crate) const CHANNEL: &str = "handfast_outbox";

/// The scope of the local transaction that emits an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within<'branch> {
    /// No global: the event is to be published when the local transaction commits.
    Itself,
    /// A branch in AT mode: the event is held until the global commits.
    Held(&'branch Xid, u64),
    /// A branch that the database prepares: the event is invisible until the global commits.
    Prepared(&'branch Xid, u64),
}

impl<'branch> Within<'branch> {
    fn state(self) -> EventState {
        match self {
            Self::Held(..) => EventState::Held,
            Self::Itself | Self::Prepared(..) => EventState::New,
        }
    }

    fn branch(self) -> Option<(&'branch Xid, u64)> {
        match self {
            Self::Itself => None,
            Self::Held(xid, id) | Self::Prepared(xid, id) => Some((xid, id)),
        }
    }

    /// The CTE that precedes the INSERT on PostgreSQL. It gives the transaction its number before
    /// the event has one, which the relay's visibility horizon relies on. It also notifies the
    /// relay, which PostgreSQL forbids to a transaction that is prepared.
    fn transaction_number_cte(self) -> String {
        let bell = match self {
            Self::Itself | Self::Held(..) => format!(", pg_notify('{CHANNEL}', '')"),
            Self::Prepared(..) => String::new(),
        };
        format!("WITH begun AS MATERIALIZED (SELECT pg_current_xact_id(){bell}) ")
    }
}

/// Returns the event with the span within which it is emitted, unless it names one already.
fn stamped(event: &Event) -> Cow<'_, Event> {
    let traceparent = trace::traceparent();
    if traceparent.is_empty() || event.header_value(trace::EVENT_HEADER).is_some() {
        return Cow::Borrowed(event);
    }
    Cow::Owned(event.clone().header(trace::EVENT_HEADER, traceparent))
}

/// Inserts an event.
pub(crate) async fn insert<DB: AtDatabase>(
    connection: &mut DB::Connection,
    event: &Event,
    within: Within<'_>,
) -> Result<(), OutboxError> {
    let event = &*stamped(event);
    event.check()?;
    let query = Query::<DB>::new(&match DB::DIALECT {
        Dialect::Postgres => within.transaction_number_cte(),
        Dialect::MySql | Dialect::Sqlite => String::new(),
    });
    let query = query
        .sql(
            "INSERT INTO event_outbox (event_id, topic, aggregate_key, key_hash, lane, headers, \
             payload, status, created_at_ms, xid, branch_id) SELECT ",
        )
        .text(&event.id().to_string())
        .sql(", ")
        .text(event.topic())
        .sql(", ")
        .text(event.key())
        .sql(", ")
        .number(event.key_hash())
        .sql(", ")
        .number(event.lane())
        .sql(", ")
        .text(&event.headers_text())
        .sql(", ")
        .bytes(event.payload_bytes())
        .sql(&format!(", {}, ", within.state().number()))
        .now();
    let query = match within.branch() {
        None => query.sql(", NULL, NULL"),
        Some((xid, id)) => query.sql(", ").text(xid.as_str()).sql(", ").number(signed(id)),
    };
    // PostgreSQL evaluates no SELECT in a WITH that is not read from.
    let query = if DB::DIALECT == Dialect::Postgres { query.sql(" FROM begun") } else { query };
    query.execute(connection).await.map_err(explain::<DB>)?;
    Ok(())
}

/// Removes the held events of a branch, which is rolled back.
pub(crate) async fn remove_held<DB: AtDatabase>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<(), sqlx::Error> {
    let named = Query::<DB>::new("DELETE FROM event_outbox WHERE status = 0 AND seq IN ");
    // By key and not by search: on MySQL a DELETE that searched would lock the rows that it passes.
    let held = held_by::<DB>(connection, xid, branch).await?;
    if !held.is_empty() {
        named.numbers(&held).execute(connection).await?;
    }
    Ok(())
}

/// Releases the held events of a branch, whatever happens to its undo row: an operator has decided
/// that the branch's rows stay.
pub(crate) async fn release_held<DB: AtDatabase>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<(), sqlx::Error> {
    let named = Query::<DB>::new("UPDATE event_outbox SET status = 1 WHERE status = 0 AND seq IN ");
    let held = held_by::<DB>(connection, xid, branch).await?;
    if !held.is_empty() {
        named.numbers(&held).execute(connection).await?;
    }
    Ok(())
}

/// Returns how many events a branch holds.
pub(crate) async fn count_held<DB: AtDatabase>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<u64, sqlx::Error> {
    Ok(held_by::<DB>(connection, xid, branch).await?.len() as u64)
}

async fn held_by<DB: AtDatabase>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<Vec<i64>, sqlx::Error> {
    let seq = DB::as_number("seq");
    let query = Query::<DB>::new(&format!("SELECT {seq} FROM event_outbox WHERE xid = "));
    let query = query.text(xid).sql(" AND branch_id = ").number(signed(branch));
    let found = query.sql(" AND status = 0").rows(connection).await?;
    found.iter().map(|row| super::query::number_of::<DB>(row, 0)).collect()
}

/// Returns a branch id as the databases store it. The coordinator refuses ids of more than 63 bits.
fn signed(branch: u64) -> i64 {
    i64::try_from(branch).unwrap_or(i64::MAX)
}

/// Converts the error of a statement on the tables.
pub(super) fn explain<DB: Backend>(error: sqlx::Error) -> OutboxError {
    if DB::is_schema_mismatch(&error) {
        return OutboxError::TableMissing { source: error };
    }
    error.into()
}
