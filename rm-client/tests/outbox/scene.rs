//! A database with an outbox, a broker that records, and relays between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::{self, Broker, Event, EventState, OutboxError, PublishError, Relay};
use sqlx::Pool;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::at::{Stage, TestDatabase};

/// A test that waits for longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const TOPIC: &str = "orders";

/// A broker that records what is published, and fails on request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    state: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    published: Vec<(String, String)>,
    refused: BTreeSet<String>,
    refusals: BTreeMap<String, u32>,
    is_down: bool,
    calls: u64,
}

impl Recorder {
    /// Returns the payloads of a key, in order.
    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let of_key = state.published.iter().filter(|(of, _)| of == key);
        of_key.map(|(_, payload)| payload.clone()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().published.len()
    }

    /// Refuses events with this payload from now on.
    pub(crate) fn refuse(&self, payload: &str) {
        self.state.lock().unwrap().refused.insert(payload.to_owned());
    }

    pub(crate) fn accept(&self, payload: &str) {
        self.state.lock().unwrap().refused.remove(payload);
    }

    pub(crate) fn refusals(&self, payload: &str) -> u32 {
        self.state.lock().unwrap().refusals.get(payload).copied().unwrap_or(0)
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }
}

impl Broker for Recorder {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        async move {
            // Concurrent calls can overtake each other here.
            tokio::task::yield_now().await;
            let payload = String::from_utf8(event.payload_bytes().to_vec()).unwrap();
            let mut state = self.state.lock().unwrap();
            state.calls += 1;
            if state.is_down {
                return Err(PublishError::Unavailable { reason: "down".to_owned() });
            }
            if state.refused.contains(&payload) {
                *state.refusals.entry(payload).or_default() += 1;
                return Err(PublishError::Refused { reason: "on purpose".to_owned() });
            }
            state.published.push((event.key().to_owned(), payload));
            Ok(())
        }
        .boxed()
    }
}

/// A relay that runs until it is stopped.
pub(crate) struct RunningRelay {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), OutboxError>>,
}

impl RunningRelay {
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it at the point that it has reached.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

pub(crate) fn start<DB: TestDatabase>(relay: Relay<DB>) -> RunningRelay {
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
    RunningRelay { stop, task }
}

/// A stage with an outbox and a broker.
pub(crate) struct Scene<DB: TestDatabase> {
    pub(crate) stage: Stage<DB>,
    pub(crate) broker: Recorder,
}

impl<DB: TestDatabase> Scene<DB> {
    pub(crate) async fn new() -> Self {
        let stage = Stage::new(&[
            "CREATE TABLE account (id INT NOT NULL PRIMARY KEY, cents INT NOT NULL)",
            "INSERT INTO account VALUES (1, 100), (2, 100)",
        ]);
        Self { stage: stage.await, broker: Recorder::default() }
    }

    pub(crate) fn pool(&self) -> &Pool<DB> {
        &self.stage.pool
    }

    /// Returns a relay that polls and retries soon.
    pub(crate) fn relay(&self) -> Relay<DB> {
        self.relay_to(self.broker.clone())
    }

    /// As [`Self::relay`], to another broker.
    pub(crate) fn relay_to(&self, broker: impl Broker + 'static) -> Relay<DB> {
        quick(Relay::new(self.pool().clone(), broker))
    }

    /// As [`Self::relay`], over another pool.
    pub(crate) fn relay_over(&self, pool: Pool<DB>) -> Relay<DB> {
        quick(Relay::new(pool, self.broker.clone()))
    }

    /// Emits an event in a local transaction of its own.
    pub(crate) async fn emit(&self, key: &str, payload: &str) {
        let mut local = self.pool().begin().await.unwrap();
        outbox::emit(&mut local, &event(key, payload)).await.unwrap();
        local.commit().await.unwrap();
    }

    /// Waits until this many events of a key are published.
    pub(crate) async fn published(&self, key: &str, count: usize) -> Vec<String> {
        until(async || self.broker.of(key).len() >= count).await;
        self.broker.of(key)
    }

    /// Waits until relays have renewed their leases a few times: by then they have read every event
    /// that was there before.
    pub(crate) async fn rounds(&self) {
        for _ in 0..3 {
            let before = self.leases().await;
            until(async || self.leases().await != before).await;
        }
    }

    async fn leases(&self) -> Option<String> {
        self.stage.value("SELECT MAX(until_ms) FROM event_relay").await
    }

    /// Returns the states of all events, in order.
    pub(crate) async fn states(&self) -> Vec<EventState> {
        let rows = outbox::list(self.pool(), None, 1_000).await.unwrap();
        rows.into_iter().map(|row| row.state).collect()
    }
}

fn quick<DB: TestDatabase>(relay: Relay<DB>) -> Relay<DB> {
    relay
        .lease(Duration::from_millis(1_000))
        .idle_max(Duration::from_millis(5))
        .backoff(Duration::from_millis(1), Duration::from_millis(10))
}

pub(crate) fn event(key: &str, payload: &str) -> Event {
    Event::new(TOPIC, key).header("type", "test").payload(payload)
}

/// Polls a condition until it holds.
pub(crate) async fn until(is_so: impl AsyncFnMut() -> bool) {
    handfast_test_services::until("the condition holds", is_so).await;
}
