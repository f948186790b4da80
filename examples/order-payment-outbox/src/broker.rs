//! The broker that the command line names.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use handfast::outbox::{
    self, Delivery, Event, InProcess, InProcessSubscription, OutboxError, PublishError,
    RedisStreams, RedisSubscription, Subscription,
};

use crate::fact::Topic;

/// When a consumer takes over what another one has left unacknowledged. Each group has one consumer
/// here, so this is for none.
const IDLE: Duration = Duration::from_secs(60);

/// Takes events from service to service.
#[derive(Debug, Clone)]
pub(crate) enum Broker {
    /// Within this process.
    InProcess(InProcess),
    /// A stream a topic. The streams are of one run and go with it.
    Redis { streams: Box<RedisStreams>, url: String, prefix: String },
}

/// What one consumer hears.
pub(crate) enum Events {
    InProcess(InProcessSubscription),
    Redis(RedisSubscription),
}

impl Broker {
    pub(crate) async fn connect(name: &str, run: &str) -> Result<Self> {
        match name.split(':').next().unwrap_or_default() {
            "in-process" => Ok(Self::InProcess(InProcess::new())),
            "redis" | "rediss" => {
                let prefix = format!("handfast:example:{run}:");
                let streams = Box::new(RedisStreams::connect(name).await?.prefix(&prefix));
                Ok(Self::Redis { streams, url: name.to_owned(), prefix })
            }
            other => bail!("--broker {other}: in-process or redis://…"),
        }
    }

    /// What `consumer` hears of a topic, from its beginning.
    pub(crate) async fn subscribe(&self, topic: Topic, consumer: &str) -> Result<Events> {
        Ok(match self {
            Self::InProcess(broker) => Events::InProcess(broker.subscribe(topic.name())),
            Self::Redis { streams, .. } => {
                Events::Redis(streams.subscribe(topic.name(), consumer, consumer, IDLE).await?)
            }
        })
    }

    /// Removes what the run has left with the broker.
    pub(crate) async fn remove(&self) -> Result<()> {
        let Self::Redis { url, prefix, .. } = self else { return Ok(()) };
        let client = redis::Client::open(url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd("DEL");
        for topic in Topic::ALL {
            command.arg(format!("{prefix}{}", topic.name()));
        }
        command.query_async::<()>(&mut connection).await.context("removing the streams")
    }
}

impl outbox::Broker for Broker {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        match self {
            Self::InProcess(broker) => outbox::Broker::publish(broker, event),
            Self::Redis { streams, .. } => outbox::Broker::publish(streams, event),
        }
    }
}

impl Subscription for Events {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        match self {
            Self::InProcess(events) => events.next(),
            Self::Redis(events) => events.next(),
        }
    }

    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>> {
        match self {
            Self::InProcess(events) => events.acknowledge(delivery),
            Self::Redis(events) => events.acknowledge(delivery),
        }
    }
}
