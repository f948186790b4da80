//! A broker for services in one process: examples, tests, small programs.
//!
//! It stores nothing. Publishing waits until every subscriber has acknowledged, so that the outbox
//! is what survives a crash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, oneshot};

use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// How many events may wait at one subscription. Publishing waits if there are more (BOUNDED).
const WAITING_MAX: usize = 256;

/// An event in flight, and the channel for its acknowledgement.
struct InFlight {
    event: Event,
    done: oneshot::Sender<()>,
}

/// A broker within this process. Cheap to clone. All clones are the same broker.
#[derive(Clone, Default)]
pub struct InProcess {
    topics: Arc<Mutex<HashMap<String, Vec<mpsc::Sender<InFlight>>>>>,
}

impl InProcess {
    /// Creates a broker without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes to a topic. Each subscription gets each event. Events of a topic without a
    /// subscription wait in the outbox.
    #[must_use]
    pub fn subscribe(&self, topic: &str) -> InProcessSubscription {
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_default().push(sender);
        InProcessSubscription { events, unacknowledged: None }
    }

    /// Returns the live subscribers of a topic, and forgets those that were dropped.
    fn subscribers(&self, topic: &str) -> Vec<mpsc::Sender<InFlight>> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(subscribers) = topics.get_mut(topic) else { return Vec::new() };
        subscribers.retain(|subscriber| !subscriber.is_closed());
        subscribers.clone()
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}

impl Broker for InProcess {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        async move {
            let unavailable = |what: &str| PublishError::Unavailable {
                reason: format!("{what} topic {}", event.topic()),
            };
            let subscribers = self.subscribers(event.topic());
            if subscribers.is_empty() {
                return Err(unavailable("no subscription to"));
            }
            let in_flight = subscribers.iter().map(|subscriber| deliver(subscriber, event));
            let taken = join_all(in_flight).await.into_iter().all(|taken| taken);
            if taken { Ok(()) } else { Err(unavailable("a subscriber has left")) }
        }
        .boxed()
    }
}

/// Sends an event to a subscriber, and returns whether it has acknowledged it.
async fn deliver(subscriber: &mpsc::Sender<InFlight>, event: &Event) -> bool {
    let (done, acknowledged) = oneshot::channel();
    let in_flight = InFlight { event: event.clone(), done };
    subscriber.send(in_flight).await.is_ok() && acknowledged.await.is_ok()
}

/// A subscription to a topic of an [`InProcess`] broker.
#[derive(Debug)]
pub struct InProcessSubscription {
    events: mpsc::Receiver<InFlight>,
    unacknowledged: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({})", self.event.id())
    }
}

impl Subscription for InProcessSubscription {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        async move {
            let unavailable =
                || OutboxError::BrokerUnavailable { reason: "the broker is gone".to_owned() };
            let in_flight = self.events.recv().await.ok_or_else(unavailable)?;
            self.unacknowledged = Some(in_flight.done);
            Ok(Delivery { tag: in_flight.event.id().to_string(), event: in_flight.event })
        }
        .boxed()
    }

    fn acknowledge<'s>(&'s mut self, _: &'s Delivery) -> BoxFuture<'s, Result<(), OutboxError>> {
        async move {
            // A relay that has stopped waiting publishes the event again, and the inbox recognises
            // it.
            if let Some(done) = self.unacknowledged.take()
                && done.send(()).is_err()
            {
                tracing::debug!("acknowledged an event after its publisher stopped waiting");
            }
            Ok(())
        }
        .boxed()
    }
}
