//! The action by an event: the first database emits it with its change, a relay carries it to a
//! broker in this process, and a consumer applies it to the second database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::{
    Consumer, Delivery, Event, EventId, InProcess, InProcessSubscription, OutboxError, Relay,
    Subscription, emit,
};
use sqlx::{Pool, Transaction};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::actions::Change;
use super::database::{Column, ModesDatabase};

const TOPIC: &str = "changes";
/// The interval of a relay's rounds. PostgreSQL also notifies the relay of an event at once.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running relay and consumer.
#[derive(Debug)]
pub(crate) struct EventFlow<DB: ModesDatabase> {
    first: Pool<DB>,
    waiting: Waiting,
    stop: watch::Sender<bool>,
    relay: JoinHandle<Result<(), OutboxError>>,
    consumer: JoinHandle<Result<(), OutboxError>>,
}

/// The callers that wait for the effect of an event.
#[derive(Clone, Debug, Default)]
struct Waiting(Arc<Mutex<HashMap<EventId, oneshot::Sender<()>>>>);

/// The consumer. It wakes the caller that waits for an event when its effect is committed.
struct EffectListener {
    events: InProcessSubscription,
    waiting: Waiting,
}

impl<DB: ModesDatabase> EventFlow<DB> {
    /// Starts both.
    pub(crate) fn start(first: &Pool<DB>, second: &Pool<DB>) -> Self {
        let (stop, broker, waiting) =
            (watch::Sender::new(false), InProcess::new(), Waiting::default());
        let events = EffectListener { events: broker.subscribe(TOPIC), waiting: waiting.clone() };
        let relay = Relay::new(first.clone(), broker).idle_max(LOOK_EVERY);
        let consumer = Consumer::new(second.clone(), "bench");
        let (relay_stop, consumer_stop) = (stopped(&stop), stopped(&stop));
        Self {
            first: first.clone(),
            waiting,
            relay: tokio::spawn(relay.run(relay_stop)),
            consumer: tokio::spawn(async move {
                consumer.run(events, take_effect::<DB>, consumer_stop).await
            }),
            stop,
        }
    }

    /// Takes from a row of the first database, and waits until the second one has the event's
    /// effect.
    pub(crate) async fn transfer(&self, from: i64, to: i64) -> Result<()> {
        let event = Event::new(TOPIC, to.to_string()).json(&Change { item: to, by: 1 })?;
        let (told, wait) = oneshot::channel();
        self.waiting.lock().insert(event.id(), told);
        let mut local = DB::begin_local(&self.first).await?;
        DB::change(&mut local, Column::Count, from, -1).await?;
        emit(&mut local, &event).await?;
        local.commit().await?;
        wait.await.context("the consumer has ended")
    }

    /// Ends both.
    pub(crate) async fn close(self) -> Result<()> {
        self.stop.send_replace(true);
        self.relay.await.context("the relay")??;
        self.consumer.await.context("the consumer")??;
        Ok(())
    }
}

fn stopped(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + use<> {
    let mut stop = stop.subscribe();
    async move {
        // A dropped sender means the same.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

fn take_effect<'l, DB: ModesDatabase>(
    local: &'l mut Transaction<'_, DB>,
    event: &'l Event,
) -> BoxFuture<'l, Result<(), OutboxError>> {
    async move {
        let change: Change = serde_json::from_slice(event.payload_bytes())
            .expect("the payload is what `transfer` has written");
        DB::change(local, Column::Count, change.item, change.by).await?;
        Ok(())
    }
    .boxed()
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<EventId, oneshot::Sender<()>>> {
        self.0.lock().expect("no holder of the waiters' lock panics")
    }
}

impl Subscription for EffectListener {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        self.events.next()
    }

    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>> {
        if let Some(told) = self.waiting.lock().remove(&delivery.event.id()) {
            // The caller may have been dropped at the end of the run.
            let _ = told.send(());
        }
        self.events.acknowledge(delivery)
    }
}
