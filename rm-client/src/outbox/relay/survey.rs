//! The view that a relay has of its lanes, for operators.

use handfast_proto::v1;

use super::super::error::OutboxError;
use super::super::query::{Query, number_of, text_of};
use super::super::table::{EventState, explain};
use crate::at::AtDatabase;

/// The most parked events that are reported: those that were parked last (BOUNDED).
const PARKED_MAX: i64 = 100;

/// The lanes of a relay, and parked events in them.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) lanes: Vec<v1::OutboxLane>,
    pub(super) parked: Vec<v1::ParkedEvent>,
}

/// Reads the lanes that a relay has. Locks nothing.
pub(super) async fn survey<DB: AtDatabase>(
    connection: &mut DB::Connection,
    relay: &str,
) -> Result<Survey, OutboxError> {
    let held = lanes_of::<DB>(connection, relay).await.map_err(explain::<DB>)?;
    if held.is_empty() {
        return Ok(Survey::default());
    }
    let lanes = count::<DB>(connection, &held).await.map_err(explain::<DB>)?;
    let has_parked = lanes.iter().any(|lane| lane.parked > 0);
    let parked =
        if has_parked { find_parked::<DB>(connection, &held).await } else { Ok(Vec::new()) };
    Ok(Survey { lanes, parked: parked.map_err(explain::<DB>)? })
}

async fn lanes_of<DB: AtDatabase>(
    connection: &mut DB::Connection,
    relay: &str,
) -> Result<Vec<i64>, sqlx::Error> {
    let lane = DB::as_number("lane");
    let query = Query::<DB>::new(&format!("SELECT {lane} FROM event_lane WHERE owner = "));
    let query = query.text(relay).sql(" AND until_ms > ").now().sql(" ORDER BY lane");
    let found = query.rows(connection).await?;
    found.iter().map(|row| number_of::<DB>(row, 0)).collect()
}

async fn count<DB: AtDatabase>(
    connection: &mut DB::Connection,
    held: &[i64],
) -> Result<Vec<v1::OutboxLane>, sqlx::Error> {
    let columns = ["lane", "status", "COUNT(*)", "MIN(created_at_ms)"].map(DB::as_number);
    let query = Query::<DB>::new(&format!("SELECT {} ", columns.join(", ")));
    let query = query.sql("FROM event_outbox WHERE lane IN ").numbers(held);
    let query = query.sql(" AND status IN (0, 1, 4) GROUP BY lane, status");
    let found = query.rows(connection).await?;
    let empty = |lane: &i64| v1::OutboxLane { lane: narrow(*lane), ..v1::OutboxLane::default() };
    let mut lanes: Vec<v1::OutboxLane> = held.iter().map(empty).collect();
    for row in &found {
        let of = narrow(number_of::<DB>(row, 0)?);
        let Some(lane) = lanes.iter_mut().find(|lane| lane.lane == of) else { continue };
        let count = unsigned(number_of::<DB>(row, 2)?);
        match EventState::from_number(number_of::<DB>(row, 1)?)? {
            EventState::Held => lane.held = count,
            EventState::Parked => lane.parked = count,
            EventState::New => {
                lane.new_events = count;
                lane.oldest_new_at_ms = unsigned(number_of::<DB>(row, 3)?);
            }
            EventState::Published | EventState::Processed | EventState::Skipped => {}
        }
    }
    Ok(lanes)
}

async fn find_parked<DB: AtDatabase>(
    connection: &mut DB::Connection,
    held: &[i64],
) -> Result<Vec<v1::ParkedEvent>, sqlx::Error> {
    let numbers = ["attempts", "next_at_ms", "created_at_ms"].map(DB::as_number).join(", ");
    let query = Query::<DB>::new(&format!("SELECT {numbers}, event_id, topic, aggregate_key, "));
    let query = query.sql("last_error, xid FROM event_outbox WHERE lane IN ").numbers(held);
    let query = query.sql(" AND status = 4 ORDER BY next_at_ms DESC, seq DESC LIMIT ");
    let found = query.number(PARKED_MAX).rows(connection).await?;
    found.iter().map(parked_event::<DB>).collect()
}

fn parked_event<DB: AtDatabase>(row: &DB::Row) -> Result<v1::ParkedEvent, sqlx::Error> {
    Ok(v1::ParkedEvent {
        attempts: unsigned(number_of::<DB>(row, 0)?),
        parked_at_ms: unsigned(number_of::<DB>(row, 1)?),
        emitted_at_ms: unsigned(number_of::<DB>(row, 2)?),
        event: text_of::<DB>(row, 3)?,
        topic: text_of::<DB>(row, 4)?,
        key: text_of::<DB>(row, 5)?,
        error: text_of::<DB>(row, 6)?,
        xid: text_of::<DB>(row, 7)?,
    })
}

/// Counts and times of the tables are not negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn narrow(lane: i64) -> u32 {
    u32::try_from(lane).unwrap_or_default()
}
