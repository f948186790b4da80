//! The outbox of the service: a relay that reports to the coordinator, and a broker that refuses
//! events until it is told otherwise.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::Handfast;
use handfast::outbox::{self, Broker, Event, OutboxError, PublishError, Relay};
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::browser::DONE;

/// The topic of all events.
const TOPIC: &str = "shipments";

/// The relay of the stock's outbox.
pub(crate) struct Shipments {
    pool: PgPool,
    carrier: Carrier,
    relay: Option<RunningRelay>,
}

struct RunningRelay {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), OutboxError>>,
}

/// A broker that refuses the events of some keys.
#[derive(Clone, Debug, Default)]
struct Carrier {
    state: Arc<Mutex<CarrierState>>,
}

#[derive(Debug, Default)]
struct CarrierState {
    refused: BTreeSet<String>,
    published: Vec<(String, String)>,
}

impl Carrier {
    fn with<T>(&self, change: impl FnOnce(&mut CarrierState) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Broker for Carrier {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        let payload = String::from_utf8_lossy(event.payload_bytes()).into_owned();
        let published = self.with(|state| {
            if payload == "packed" && state.refused.contains(event.key()) {
                let reason = format!("no queue is bound to {TOPIC} for {}", event.key());
                return Err(PublishError::Refused { reason });
            }
            state.published.push((event.key().to_owned(), payload));
            Ok(())
        });
        async move { published }.boxed()
    }
}

impl Shipments {
    /// Starts the relay.
    pub(crate) fn open(handfast: &Handfast, pool: PgPool) -> Self {
        let carrier = Carrier::default();
        let relay = Relay::new(pool.clone(), carrier.clone())
            .attempts_max(2)
            .backoff(Duration::from_millis(10), Duration::from_millis(20))
            .report_to(handfast, "stock");
        let (stop, stopped) = oneshot::channel();
        // The sender is dropped only when the relay is to stop too.
        let ended = tokio::spawn(relay.run(async { drop(stopped.await) }));
        Self { pool, carrier, relay: Some(RunningRelay { stop, ended }) }
    }

    /// Emits two events of a key, of which the broker refuses the first.
    pub(crate) async fn park(&self, key: &str) -> Result<Value> {
        self.carrier.with(|state| state.refused.insert(key.to_owned()));
        for payload in ["packed", "sent"] {
            let mut local = self.pool.begin().await?;
            outbox::emit(&mut local, &Event::new(TOPIC, key).payload(payload)).await?;
            local.commit().await?;
        }
        Ok(DONE)
    }

    /// Has the broker accept the events of a key.
    pub(crate) fn accept(&self, key: &str) -> Value {
        self.carrier.with(|state| state.refused.remove(key));
        DONE
    }

    /// Returns what is published of a key, in order.
    pub(crate) fn published(&self, key: &str) -> Value {
        let of_key = self.carrier.with(|state| {
            let of_key = state.published.iter().filter(|(of, _)| of == key);
            of_key.map(|(_, payload)| payload.clone()).collect::<Vec<_>>()
        });
        json!(of_key.join(", "))
    }

    /// Stops the relay.
    pub(crate) async fn close(&mut self) -> Result<()> {
        let Some(RunningRelay { stop, ended }) = self.relay.take() else { return Ok(()) };
        // It may have ended by itself, and says so.
        let _ = stop.send(());
        ended.await.context("the relay")??;
        Ok(())
    }
}
