//! A broker for services in one process: examples, tests, small programs.
//!
//! It keeps nothing. Publishing waits until every subscriber has acknowledged, so that the outbox
//! itself is what survives a crash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, oneshot};

use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// Events that wait at one subscription; more make publishing wait (BOUNDED).
const WAITING_MAX: usize = 256;

/// An event on its way, and where its acknowledgement goes.
struct Handed {
    event: Event,
    done: oneshot::Sender<()>,
}

/// A broker within this process. Cheap to clone; clones are the same broker.
#[derive(Clone, Default)]
pub struct InProcess {
    topics: Arc<Mutex<HashMap<String, Vec<mpsc::Sender<Handed>>>>>,
}

impl InProcess {
    /// A broker that nobody has subscribed to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes to a topic. Each subscription gets each event; a topic without any is not
    /// published to: its events wait in the outbox.
    #[must_use]
    pub fn subscribe(&self, topic: &str) -> InProcessSubscription {
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_default().push(sender);
        InProcessSubscription { events, unacknowledged: None }
    }

    /// Those who listen, without those who are gone.
    fn subscribers(&self, topic: &str) -> Vec<mpsc::Sender<Handed>> {
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
                return Err(unavailable("nobody subscribes to"));
            }
            let handed = subscribers.iter().map(|subscriber| hand(subscriber, event));
            let taken = join_all(handed).await.into_iter().all(|taken| taken);
            if taken { Ok(()) } else { Err(unavailable("a subscriber has left")) }
        }
        .boxed()
    }
}

/// Answers whether the subscriber has acknowledged.
async fn hand(subscriber: &mpsc::Sender<Handed>, event: &Event) -> bool {
    let (done, acknowledged) = oneshot::channel();
    let handed = Handed { event: event.clone(), done };
    subscriber.send(handed).await.is_ok() && acknowledged.await.is_ok()
}

/// A subscription to a topic of an [`InProcess`] broker.
#[derive(Debug)]
pub struct InProcessSubscription {
    events: mpsc::Receiver<Handed>,
    unacknowledged: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handed({})", self.event.id())
    }
}

impl Subscription for InProcessSubscription {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        async move {
            let unavailable =
                || OutboxError::BrokerUnavailable { reason: "the broker is gone".to_owned() };
            let handed = self.events.recv().await.ok_or_else(unavailable)?;
            self.unacknowledged = Some(handed.done);
            Ok(Delivery { tag: handed.event.id().to_string(), event: handed.event })
        }
        .boxed()
    }

    fn acknowledge<'s>(&'s mut self, _: &'s Delivery) -> BoxFuture<'s, Result<(), OutboxError>> {
        async move {
            // A relay that has stopped waiting hands the event over again; the inbox knows it.
            if let Some(done) = self.unacknowledged.take()
                && done.send(()).is_err()
            {
                tracing::debug!("acknowledged an event that nobody waits for any more");
            }
            Ok(())
        }
        .boxed()
    }
}
