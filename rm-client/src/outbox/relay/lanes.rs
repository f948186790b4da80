//! Lanes: they say which relay publishes which keys. Each lane has one owner at a time, by a lease.
//!
//! Relays coordinate through the rows of `event_lane`. A renewal locks all of them first, so that
//! the live relays and the owners of lanes are determined by one relay at a time. A relay measures
//! how long it may publish by its own clock, from before the renewal, so that it stops before the
//! database gives its lanes to others.

use std::time::Duration;

use handfast_rm_core::relay::{LaneOwner, LaneShares, shares};
use sqlx::pool::PoolConnection;
use tokio::time::Instant;

use super::super::error::OutboxError;
use super::super::event::LANES;
use super::super::query::{Query, number_of, text_of};
use super::super::table::explain;
use crate::at::{AtDatabase, Dialect};

/// The lanes of one relay.
#[derive(Debug)]
pub(super) struct Lanes {
    name: String,
    lease: Duration,
    held: Vec<i64>,
    /// When the last renewal began.
    renewed: Option<Instant>,
}

impl Lanes {
    pub(super) fn new(name: String, lease: Duration) -> Self {
        Self { name, lease, held: Vec::new(), renewed: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn held(&self) -> &[i64] {
        &self.held
    }

    /// Returns whether it is time for a renewal.
    pub(super) fn are_due(&self) -> bool {
        self.renewed.is_none_or(|renewed| renewed.elapsed() >= self.lease / 4)
    }

    /// Returns until when this relay may publish, or `None` if it may not.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // A quarter is kept in reserve, since clocks run at different rates.
        let deadline = self.renewed? + self.lease * 3 / 4;
        (!self.held.is_empty() && Instant::now() < deadline).then_some(deadline)
    }

    /// Renews the leases, takes free lanes up to a fair share, and gives back what is above it.
    pub(super) async fn renew<DB: AtDatabase>(
        &mut self,
        connection: &mut PoolConnection<DB>,
    ) -> Result<(), OutboxError> {
        let began = Instant::now();
        if self.renewed.is_none() {
            make_lanes::<DB>(connection).await.map_err(explain::<DB>)?;
        }
        self.held = self.share::<DB>(connection).await.map_err(explain::<DB>)?;
        self.renewed = Some(began);
        Ok(())
    }

    /// Gives up all lanes.
    pub(super) async fn leave<DB: AtDatabase>(
        &mut self,
        connection: &mut PoolConnection<DB>,
    ) -> Result<(), sqlx::Error> {
        // First of all: whatever becomes of the rest, this relay publishes nothing more.
        self.held.clear();
        let mut local = DB::begin_on(connection).await?;
        lock_lanes::<DB>(&mut local, &self.name).await?;
        let query = Query::<DB>::new("UPDATE event_lane SET until_ms = 0 WHERE owner = ");
        query.text(&self.name).execute(&mut local).await?;
        let query = Query::<DB>::new("DELETE FROM event_relay WHERE name = ");
        query.text(&self.name).execute(&mut local).await?;
        local.commit().await
    }

    async fn share<DB: AtDatabase>(
        &self,
        connection: &mut PoolConnection<DB>,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX >> 1);
        let mut local = DB::begin_on(connection).await?;
        let lanes = lock_lanes::<DB>(&mut local, &self.name).await?;
        let query = Query::<DB>::new("DELETE FROM event_relay WHERE until_ms <= ").now();
        query.sql(" OR name = ").text(&self.name).execute(&mut local).await?;
        let query = Query::<DB>::new("INSERT INTO event_relay (name, until_ms) SELECT ");
        let query = query.text(&self.name).sql(", ").now().sql(" + ").number(lease_ms);
        query.execute(&mut local).await?;
        let query = Query::<DB>::new("SELECT COUNT(*) FROM event_relay");
        let relays = query.rows(&mut local).await?;
        let relays = relays.first().map(number_of_first::<DB>).transpose()?.unwrap_or(1);
        let LaneShares { keep, give } = shares(&lanes, usize::try_from(relays).unwrap_or(1));
        if !keep.is_empty() {
            let query = Query::<DB>::new("UPDATE event_lane SET owner = ").text(&self.name);
            let query = query.sql(", until_ms = ").now().sql(" + ").number(lease_ms);
            query.sql(" WHERE lane IN ").numbers(&keep).execute(&mut local).await?;
        }
        if !give.is_empty() {
            let query = Query::<DB>::new("UPDATE event_lane SET until_ms = 0 WHERE lane IN ");
            query.numbers(&give).execute(&mut local).await?;
        }
        local.commit().await?;
        Ok(keep)
    }
}

fn number_of_first<DB: AtDatabase>(row: &DB::Row) -> Result<i64, sqlx::Error> {
    number_of::<DB>(row, 0)
}

/// Returns all lanes, locked: the next relay that shares them out waits.
async fn lock_lanes<DB: AtDatabase>(
    connection: &mut DB::Connection,
    name: &str,
) -> Result<Vec<(i64, LaneOwner)>, sqlx::Error> {
    let lane = DB::as_number("lane");
    let query = Query::<DB>::new(&format!("SELECT {lane}, owner, CAST(CASE WHEN until_ms > "));
    // In the order of the lanes, so that two relays wait for each other without a deadlock.
    let query = query.now().sql(match DB::DIALECT {
        Dialect::Postgres => {
            " THEN 1 ELSE 0 END AS BIGINT) FROM event_lane ORDER BY lane FOR UPDATE"
        }
        Dialect::MySql => " THEN 1 ELSE 0 END AS SIGNED) FROM event_lane ORDER BY lane FOR UPDATE",
        Dialect::Sqlite => " THEN 1 ELSE 0 END AS INTEGER) FROM event_lane ORDER BY lane",
    });
    let owner = |row: &DB::Row| {
        let (lane, owned) = (number_of::<DB>(row, 0)?, number_of::<DB>(row, 2)? == 1);
        let owner = match owned {
            true if text_of::<DB>(row, 1)? == name => LaneOwner::Ours,
            true => LaneOwner::Others,
            false => LaneOwner::Free,
        };
        Ok((lane, owner))
    };
    query.rows(connection).await?.iter().map(owner).collect()
}

/// Creates the rows of the lanes, which stay forever.
async fn make_lanes<DB: AtDatabase>(
    connection: &mut PoolConnection<DB>,
) -> Result<(), sqlx::Error> {
    let mut local = DB::begin_on(connection).await?;
    let there = Query::<DB>::new("SELECT COUNT(*) FROM event_lane").rows(&mut local).await?;
    if there.first().map(number_of_first::<DB>).transpose()? != Some(LANES) {
        let lanes = (0..LANES).map(|lane| format!("({lane}, '', 0)")).collect::<Vec<_>>();
        let (verb, tail) = match DB::DIALECT {
            Dialect::MySql => ("INSERT IGNORE INTO", ""),
            Dialect::Postgres | Dialect::Sqlite => ("INSERT INTO", " ON CONFLICT DO NOTHING"),
        };
        let text =
            format!("{verb} event_lane (lane, owner, until_ms) VALUES {}{tail}", lanes.join(", "));
        Query::<DB>::new(&text).execute(&mut local).await?;
    }
    local.commit().await
}
