//! The relay: takes events from the outbox to a broker, at least once, in the order of each key.
//!
//! ```text
//! lanes ── release held ── horizon ── claim ── publish ── mark published
//!   │            │             │         │          └─ killed here: the next relay publishes again
//!   │            │             │         └─ with a token: a relay that lost the lane marks nothing
//!   │            │             └─ PostgreSQL: not past a writer that is still running
//!   │            └─ whose undo row is gone: the global has committed
//!   └─ a lease on each: one relay at a time publishes a key
//! ```
//!
//! It reads by state, never from a position onwards, so that an event that becomes visible late is
//! only delayed, not lost. It does not know the details of any broker.

mod claim;
mod lanes;
mod publish;
mod report;
mod settle;
mod skip_cursor;
mod survey;
mod visibility_horizon;

use std::fmt;
use std::future::{self, Future};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use handfast_rm_core::relay::{PublishResult, Round, VisibilityHorizon, Wait};
use sqlx::Pool;
use sqlx::pool::PoolConnection;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use self::claim::Claimed;
use self::lanes::Lanes;
use self::report::{Reporter, Reporting};
use self::skip_cursor::SkipCursor;
use super::broker::Broker;
use super::error::OutboxError;
use super::operate::purge_on;
use crate::at::database::begin::acquire;
use crate::at::{AtDatabase, crash_point};
use crate::connect::Handfast;

/// How often finished rows are purged.
const PURGE_EVERY: Duration = Duration::from_secs(60);
/// The most finished rows that one purge removes, so that events do not wait for it (BOUNDED).
const PURGE_ROWS_MAX: u64 = 5_000;
/// A round that takes longer than this, and than a lease, has lost its database: a database whose
/// host has vanished may never answer, and the connection does not break.
const ROUND_MAX: Duration = Duration::from_secs(15);
/// How long a round waits for the database's notifications to be set up.
const LISTEN_MAX: Duration = Duration::from_secs(1);

/// The settings of a relay.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) batch: u32,
    pub(super) attempts_max: u32,
    pub(super) backoff_min: Duration,
    pub(super) backoff_max: Duration,
    pub(super) lease: Duration,
    pub(super) idle_max: Duration,
    pub(super) retention: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch: 200,
            attempts_max: 10,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(60),
            lease: Duration::from_secs(15),
            idle_max: Duration::from_millis(500),
            retention: Duration::from_secs(7 * 86_400),
        }
    }
}

/// Publishes the events of one database to one broker. Several relays may run at the same time, in
/// any number of processes: they share the keys among them.
///
/// ```no_run
/// use handfast::outbox::{InProcess, Relay};
///
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), handfast::outbox::OutboxError> {
/// let broker = InProcess::new();
/// let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// Relay::new(pool, broker.clone()).run(stop).await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a relay does nothing until it is run"]
pub struct Relay<DB: AtDatabase> {
    pool: Pool<DB>,
    broker: Arc<dyn Broker>,
    settings: Settings,
    reporting: Option<Reporting>,
}

impl<DB: AtDatabase> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Relay");
        shown.field("broker", &self.broker).field("settings", &self.settings);
        shown.finish_non_exhaustive()
    }
}

impl<DB: AtDatabase> Relay<DB> {
    /// Creates a relay with default settings.
    pub fn new(pool: Pool<DB>, broker: impl Broker + 'static) -> Self {
        let (broker, settings, reporting) = (Arc::new(broker), Settings::default(), None);
        Self { pool, broker, settings, reporting }
    }

    /// Makes the relay report to the coordinator what it sees in its outbox, which operators know
    /// by `outbox`: how many events are held, new and parked in each of its lanes, how old they
    /// are, and the parked events with the broker's reason. Operators may have a parked event
    /// requeued or skipped over the coordinator then, with `handfast events`. Not reported unless
    /// this is set; topic, key and reason of a parked event are shown in clear text.
    ///
    /// The relay does not depend on the coordinator, and never waits for it. A report takes a
    /// connection of the pool every two seconds for the time of three queries, if one is free.
    ///
    /// ```no_run
    /// use handfast::Handfast;
    /// use handfast::outbox::{InProcess, OutboxError, Relay};
    ///
    /// # async fn example(pool: sqlx::SqlitePool, handfast: Handfast) -> Result<(), OutboxError> {
    /// let relay = Relay::new(pool, InProcess::new()).report_to(&handfast, "orders");
    /// relay.run(std::future::pending()).await
    /// # }
    /// ```
    pub fn report_to(mut self, handfast: &Handfast, outbox: impl Into<String>) -> Self {
        let (handfast, outbox) = (handfast.clone(), outbox.into());
        self.reporting = Some(Reporting { handfast, outbox });
        self
    }

    /// Sets how many events are claimed at a time, 200 unless set. Fewer need more round trips.
    /// With more, a crash publishes more events twice.
    pub fn batch(mut self, events: u32) -> Self {
        self.settings.batch = events.clamp(1, 10_000);
        self
    }

    /// Sets how often an event may be refused before it is parked, 10 unless set. Failures to reach
    /// the broker do not count.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.settings.attempts_max = attempts.max(1);
        self
    }

    /// Sets the pauses before a refused event is tried again: the first, which doubles each time,
    /// and the longest. 100 ms and 60 s unless set.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.backoff_min = first;
        self.settings.backoff_max = longest.max(first);
        self
    }

    /// Sets how long the keys of a relay that dies wait for another one, 15 s unless set. A relay
    /// that cannot reach its database for this time stops publishing.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// Sets the longest pause between two searches of an empty outbox, 500 ms unless set.
    pub fn idle_max(mut self, pause: Duration) -> Self {
        self.settings.idle_max = pause.max(Duration::from_millis(1));
        self
    }

    /// Sets how long published, processed and skipped events are kept, 7 days unless set.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Relays until `stop` is ready, then finishes the events that it has claimed and gives up its
    /// lanes. Each of these takes the length of a lease at most. While the broker or the database
    /// fails, the relay waits and tries again.
    ///
    /// # Errors
    /// [`OutboxError::TableMissing`]: there is no outbox, and waiting does not help.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), OutboxError> {
        let mut running = Running::new(self);
        let reporter = running.reporter();
        let reporting = async {
            match &reporter {
                Some(reporter) => reporter.run().await,
                None => future::pending().await,
            }
        };
        // Beside each other, the relay first: reports have the time in which it waits.
        let ended = tokio::select! {
            biased;
            ended = Box::pin(running.run(stop)) => ended,
            never = Box::pin(reporting) => match never {},
        };
        if let Some(reporter) = &reporter {
            reporter.leave().await;
        }
        ended
    }
}

/// A running relay.
struct Running<DB: AtDatabase> {
    relay: Relay<DB>,
    lanes: Lanes,
    horizon: VisibilityHorizon,
    skip_cursor: SkipCursor,
    wait: Wait,
    doorbell: Option<BoxStream<'static, ()>>,
    /// The relay's own connection, never returned to the pool: it would pass an isolation level on
    /// to its next user.
    connection: Option<PoolConnection<DB>>,
    batches: u64,
    purge_due: Instant,
}

impl<DB: AtDatabase> Running<DB> {
    fn new(relay: Relay<DB>) -> Self {
        let settings = &relay.settings;
        let name = Uuid::new_v4().simple().to_string();
        Self {
            lanes: Lanes::new(name, settings.lease),
            horizon: VisibilityHorizon::default(),
            skip_cursor: SkipCursor::default(),
            wait: Wait::new(settings.idle_max),
            doorbell: None,
            connection: None,
            batches: 0,
            // At once, so that a relay that is restarted again and again purges too.
            purge_due: Instant::now(),
            relay,
        }
    }

    /// Returns what reports on this relay, if it is to.
    fn reporter(&self) -> Option<Reporter<DB>> {
        let reporting = self.relay.reporting.clone()?;
        let (pool, relay) = (self.relay.pool.clone(), self.lanes.name().to_owned());
        Some(Reporter { pool, reporting, relay })
    }

    async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<(), OutboxError> {
        let mut stop = pin!(stop);
        loop {
            let Some(pause) = self.round_until(stop.as_mut()).await? else { break };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.wait(pause) => {}
            }
        }
        self.leave().await;
        Ok(())
    }

    /// Runs one round. If `stop` becomes ready, the round may go on for a lease. Returns how long
    /// to pause before the next round, or `None` to stop.
    async fn round_until(
        &mut self,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Duration>, OutboxError> {
        let lease = self.relay.settings.lease;
        let mut round = pin!(self.round_or_pause());
        tokio::select! {
            biased;
            () = stop => timeout(lease, round).await.map_or(Ok(None), |pause| pause.map(|_| None)),
            pause = &mut round => pause.map(Some),
        }
    }

    /// Runs one round, and returns how long to pause before the next one.
    async fn round_or_pause(&mut self) -> Result<Duration, OutboxError> {
        let limit = self.relay.settings.lease.max(ROUND_MAX);
        let silent = |_elapsed| Err(sqlx::Error::Io(ErrorKind::TimedOut.into()).into());
        match timeout(limit, self.round()).await.unwrap_or_else(silent) {
            Ok(round) => {
                let pause = self.wait.after(round);
                Ok(self.skip_cursor.pause_max(Instant::now()).unwrap_or(pause).min(pause))
            }
            Err(error @ OutboxError::TableMissing { .. }) => Err(error),
            Err(error) => {
                tracing::warn!(%error, code = error.code(), "relay round failed, to be repeated");
                Ok(self.wait.after(Round::Unavailable))
            }
        }
    }

    /// Runs one round, on a connection that is closed if the round fails or is cut off.
    async fn round(&mut self) -> Result<Round, OutboxError> {
        let mut connection = self.connect().await?;
        let round = self.round_on(&mut connection).await?;
        // Only after a whole round: a connection that was cut off may be in a transaction.
        self.connection = Some(connection);
        Ok(round)
    }

    async fn connect(&mut self) -> Result<PoolConnection<DB>, sqlx::Error> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let mut connection = acquire(&self.relay.pool).await?;
        connection.close_on_drop();
        Ok(connection)
    }

    async fn round_on(
        &mut self,
        connection: &mut PoolConnection<DB>,
    ) -> Result<Round, OutboxError> {
        if self.lanes.are_due() {
            self.lanes.renew(connection).await?;
            self.listen().await;
        }
        self.purge_if_due(connection).await?;
        let Some(deadline) = self.lanes.deadline() else {
            // The events that were passed over belong to another relay.
            self.skip_cursor = SkipCursor::default();
            return Ok(Round::Idle);
        };
        let horizon = visibility_horizon::advance::<DB>(&mut self.horizon, connection).await?;
        claim::release_held(connection, self.lanes.held()).await?;
        self.batches += 1;
        let claim = claim::ClaimQuery {
            relay: self.lanes.name(),
            token: format!("{}#{}", self.lanes.name(), self.batches),
            lanes: self.lanes.held(),
            horizon,
            after: self.skip_cursor.search_after(Instant::now()),
            batch: self.relay.settings.batch,
            lease: self.relay.settings.lease,
        };
        let taken = claim.take(connection).await?;
        if taken.events.is_empty() {
            return Ok(self.none_to_publish(taken.up_to));
        }
        self.publish(connection, &claim.token, &taken.events, deadline).await
    }

    /// Handles a claim without events: all events up to this number are locked, or the end is
    /// reached.
    fn none_to_publish(&mut self, up_to: Option<i64>) -> Round {
        let Some(seq) = up_to else {
            self.skip_cursor.finish_pass();
            return Round::Idle;
        };
        self.skip_cursor.skip_to(seq, Instant::now());
        Round::Skipped
    }

    async fn publish(
        &mut self,
        connection: &mut PoolConnection<DB>,
        token: &str,
        claimed: &[Claimed],
        deadline: Instant,
    ) -> Result<Round, OutboxError> {
        crash_point("before-publish");
        let results = publish::publish(&*self.relay.broker, claimed, deadline).await;
        crash_point("after-publish");
        settle::settle::<DB>(connection, &self.relay.settings, token, claimed, &results).await?;
        let unavailable = results.iter().find_map(PublishResult::unavailable);
        if let Some(reason) = unavailable {
            tracing::warn!(reason, "broker does not serve, events wait");
        }
        // A broker that accepted no event may be down altogether. It gets the same events only
        // after a pause, but the events behind them are tried.
        if unavailable.is_some() && !results.contains(&PublishResult::Published) {
            let last = claimed.iter().map(|claimed| claimed.seq).max().unwrap_or_default();
            self.skip_cursor.skip_to(last, Instant::now());
            return Ok(Round::Skipped);
        }
        self.skip_cursor.finish_pass();
        Ok(Round::Busy)
    }

    async fn purge_if_due(&mut self, connection: &mut DB::Connection) -> Result<(), OutboxError> {
        if self.purge_due <= Instant::now() {
            // Before the work: a purge that fails must not fail every round, in which events would
            // wait.
            self.purge_due = Instant::now() + PURGE_EVERY;
            purge_on::<DB>(connection, self.relay.settings.retention, PURGE_ROWS_MAX).await?;
        }
        Ok(())
    }

    /// Subscribes to the database's notifications, if it has any. Without them the relay relies on
    /// its pauses, so no event waits for a connection that the pool cannot give.
    async fn listen(&mut self) {
        let pool = &self.relay.pool;
        let has_room = pool.num_idle() > 0 || pool.size() < pool.options().get_max_connections();
        if self.doorbell.is_some() || !has_room {
            return;
        }
        match timeout(LISTEN_MAX, DB::doorbell(pool)).await {
            Ok(Ok(doorbell)) => self.doorbell = doorbell,
            Ok(Err(error)) => tracing::debug!(%error, "no notifications, the relay polls"),
            Err(_elapsed) => tracing::debug!("no notifications in time, the relay polls"),
        }
    }

    /// Pauses, unless the database notifies the relay of an event.
    async fn wait(&mut self, pause: Duration) {
        let Some(doorbell) = &mut self.doorbell else { return tokio::time::sleep(pause).await };
        match timeout(pause, doorbell.next()).await {
            Ok(Some(())) => self.wait.reset(),
            // The listener has ended. The next renewal of the lanes makes another.
            Ok(None) => self.doorbell = None,
            Err(_elapsed) => {}
        }
    }

    async fn leave(&mut self) {
        let lease = self.relay.settings.lease;
        let leaving = async {
            let mut connection = self.connect().await?;
            self.lanes.leave(&mut connection).await
        };
        match timeout(lease, leaving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "lanes left to their leases"),
            Err(_elapsed) => tracing::debug!("no answer, lanes left to their leases"),
        }
    }
}
