//! The consumer's side: the effect of an event happens once, however often it is delivered.
//!
//! The row of `event_inbox` is inserted first in the local transaction of the effect. The INSERT
//! waits for another delivery of the same event that is under way. If that one commits, the INSERT
//! finds its row. If it rolls back, this delivery is the first.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::{Pool, Transaction};
use tracing::Instrument;

use super::broker::{Delivery, Subscription};
use super::error::OutboxError;
use super::event::Event;
use super::query::{Query, number_of};
use super::table::explain;
use crate::at::{AtDatabase, CommitError, Dialect, commit, crash_point};
use crate::trace;

/// How often the database may abort the local transaction in favour of others before the error is
/// returned to the caller (BOUNDED).
const REPEATS_MAX: u32 = 20;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long one attempt of [`Consumer::run`] may take, unless set (BOUNDED).
const ATTEMPT_MAX: Duration = Duration::from_secs(300);

/// The result of receiving an event. Both variants are success: acknowledge the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The effect has happened, with this result.
    Done(T),
    /// The effect had happened before.
    Before,
}

/// A consumer of events: a name, and the database of its effects.
#[derive(Clone)]
pub struct Consumer<DB: AtDatabase> {
    pool: Pool<DB>,
    name: String,
    attempt_max: Duration,
}

impl<DB: AtDatabase> fmt::Debug for Consumer<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<DB: AtDatabase> Consumer<DB> {
    /// Creates a consumer. All processes of one service use the same name. Services that share a
    /// database use different names.
    pub fn new(pool: Pool<DB>, name: impl Into<String>) -> Self {
        Self { pool, name: name.into(), attempt_max: ATTEMPT_MAX }
    }

    /// Sets how long an effect of [`Self::run`] may take, its COMMIT included, 5 minutes unless
    /// set. After that it is rolled back and tried again: a database whose host has vanished may
    /// never answer. If the limit is shorter than an effect takes, that effect never happens.
    #[must_use]
    pub fn attempt_max(mut self, limit: Duration) -> Self {
        self.attempt_max = limit;
        self
    }

    /// Runs the effect of an event in a local transaction, unless it has happened before. If the
    /// database aborts the transaction in favour of others, before the effect or at COMMIT, it is
    /// repeated. So **the closure may run several times**, each time in a fresh local transaction.
    ///
    /// ```
    /// use handfast::outbox::{Consumer, Event, OutboxError, Received};
    ///
    /// async fn pay(payments: &Consumer<sqlx::Sqlite>, event: &Event) -> Result<(), OutboxError> {
    ///     let received = payments.receive(event, |local, event| {
    ///         Box::pin(async move {
    ///             let insert = sqlx::query("INSERT INTO payment (order_id) VALUES (?)");
    ///             insert.bind(event.key().to_owned()).execute(&mut **local).await?;
    ///             Ok::<_, OutboxError>(())
    ///         })
    ///     });
    ///     match received.await? {
    ///         Received::Done(()) | Received::Before => Ok(()),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The closure's own error, with the local transaction rolled back;
    /// [`OutboxError::EndedEarly`]; [`OutboxError::TableMissing`]; or the error of the database.
    pub async fn receive<'env, T, E, F>(
        &'env self,
        event: &'env Event,
        mut work: F,
    ) -> Result<Received<T>, E>
    where
        F: for<'local> FnMut(
            &'local mut Transaction<'env, DB>,
            &'local Event,
        ) -> BoxFuture<'local, Result<T, E>>,
        E: From<OutboxError>,
    {
        let mut repeats = 0;
        loop {
            match self.attempt(event, &mut work).await {
                Err(Stopped::Inbox(OutboxError::Conflict { .. })) if repeats < REPEATS_MAX => {
                    repeats += 1;
                }
                Err(Stopped::Inbox(error)) => return Err(error.into()),
                Err(Stopped::Work(error)) => return Err(error),
                Ok(received) => return Ok(received),
            }
        }
    }

    /// Receives event after event until `stop` is ready. An effect that fails is tried again after
    /// a pause, before any later event, so that the order is kept. While a broker does not serve,
    /// this waits for it.
    ///
    /// # Errors
    /// [`OutboxError::TableMissing`]: there is no inbox, and waiting does not help.
    pub async fn run<F, E>(
        &self,
        mut events: impl Subscription,
        mut work: F,
        stop: impl Future<Output = ()>,
    ) -> Result<(), OutboxError>
    where
        F: for<'local> FnMut(
            &'local mut Transaction<'_, DB>,
            &'local Event,
        ) -> BoxFuture<'local, Result<(), E>>,
        E: fmt::Display + From<OutboxError>,
    {
        let mut stop = pin!(stop);
        let mut pause = Duration::ZERO;
        loop {
            let delivery = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                delivery = next(&mut events, pause) => delivery,
            };
            let delivery = match delivery {
                Ok(delivery) => delivery,
                Err(error) => {
                    tracing::warn!(consumer = self.name, %error, "broker gives no events, trying again");
                    pause = longer(pause);
                    continue;
                }
            };
            pause = Duration::ZERO;
            tokio::select! {
                // An effect that is cut off is not acknowledged, so the broker delivers the event
                // again, and the inbox tells whether it was committed.
                biased;
                () = &mut stop => return Ok(()),
                done = self.until_done(&delivery, &mut work) => done?,
            }
            crash_point("before-acknowledge");
            if let Err(error) = events.acknowledge(&delivery).await {
                tracing::warn!(consumer = self.name, %error, "not acknowledged, the event will be delivered again");
                pause = longer(pause);
            }
        }
    }

    /// Tries until the effect is committed.
    async fn until_done<F, E>(&self, delivery: &Delivery, work: &mut F) -> Result<(), OutboxError>
    where
        F: for<'local> FnMut(
            &'local mut Transaction<'_, DB>,
            &'local Event,
        ) -> BoxFuture<'local, Result<(), E>>,
        E: fmt::Display + From<OutboxError>,
    {
        let mut pause = Duration::ZERO;
        loop {
            let attempt = self.attempt(&delivery.event, work);
            let failure = match tokio::time::timeout(self.attempt_max, attempt).await {
                Ok(Ok(Received::Done(()) | Received::Before)) => return Ok(()),
                Ok(Err(Stopped::Inbox(error @ OutboxError::TableMissing { .. }))) => {
                    return Err(error);
                }
                Ok(Err(Stopped::Inbox(error))) => error.to_string(),
                Ok(Err(Stopped::Work(error))) => error.to_string(),
                // COMMIT may have taken effect. Then the next attempt finds the event in the inbox.
                Err(_elapsed) => format!("no end within {:?}", self.attempt_max),
            };
            pause = longer(pause);
            let event = delivery.event.id();
            tracing::warn!(consumer = self.name, %event, failure, "effect failed, trying again");
            tokio::time::sleep(pause).await;
        }
    }

    /// Runs one local transaction. If anything in it fails, dropping it rolls it back.
    async fn attempt<'env, T, E, F>(
        &'env self,
        event: &Event,
        work: &mut F,
    ) -> Result<Received<T>, Stopped<E>>
    where
        F: for<'local> FnMut(
            &'local mut Transaction<'env, DB>,
            &'local Event,
        ) -> BoxFuture<'local, Result<T, E>>,
    {
        let span = trace::process(&self.name, event);
        self.enter_and_work(event, work).instrument(span).await
    }

    async fn enter_and_work<'env, T, E, F>(
        &'env self,
        event: &Event,
        work: &mut F,
    ) -> Result<Received<T>, Stopped<E>>
    where
        F: for<'local> FnMut(
            &'local mut Transaction<'env, DB>,
            &'local Event,
        ) -> BoxFuture<'local, Result<T, E>>,
    {
        let mut local: Transaction<'env, DB> =
            DB::begin_marked(&self.pool).await.map_err(Stopped::database::<DB>)?;
        let first = enter::<DB>(&mut local, &self.name, event).await;
        let received = if first.map_err(Stopped::database::<DB>)? {
            Received::Done(work(&mut local, event).await.map_err(Stopped::Work)?)
        } else {
            Received::Before
        };
        // Otherwise an event could be acknowledged without its effect.
        commit(local).await.map_err(|error| match error {
            CommitError::EndedEarly(source) => Stopped::Inbox(OutboxError::EndedEarly { source }),
            CommitError::Database(error) => Stopped::database::<DB>(error),
        })?;
        Ok(received)
    }
}

async fn next(events: &mut impl Subscription, pause: Duration) -> Result<Delivery, OutboxError> {
    tokio::time::sleep(pause).await;
    events.next().await
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// The error that ended an attempt.
enum Stopped<E> {
    Inbox(OutboxError),
    Work(E),
}

impl<E> Stopped<E> {
    fn database<DB: AtDatabase>(error: sqlx::Error) -> Self {
        Self::Inbox(explain::<DB>(error))
    }
}

/// Inserts the row, or counts the delivery. Returns whether this is the first delivery.
async fn enter<DB: AtDatabase>(
    connection: &mut DB::Connection,
    consumer: &str,
    event: &Event,
) -> Result<bool, sqlx::Error> {
    let query = Query::<DB>::new(
        "INSERT INTO event_inbox (consumer, event_id, deliveries, received_at_ms) VALUES (",
    );
    let query = query.text(consumer).sql(", ").text(&event.id().to_string()).sql(", 1, ").now();
    match DB::DIALECT {
        // MySQL counts one row for an INSERT and two for an UPDATE.
        Dialect::MySql => {
            let query = query.sql(") ON DUPLICATE KEY UPDATE deliveries = deliveries + 1");
            Ok(query.execute(connection).await? == 1)
        }
        Dialect::Postgres | Dialect::Sqlite => {
            let query = query.sql(
                ") ON CONFLICT (consumer, event_id) DO UPDATE SET \
                 deliveries = event_inbox.deliveries + 1 RETURNING ",
            );
            let found = query.sql(&DB::as_number("deliveries")).rows(connection).await?;
            Ok(found.first().map(|row| number_of::<DB>(row, 0)).transpose()? == Some(1))
        }
    }
}
