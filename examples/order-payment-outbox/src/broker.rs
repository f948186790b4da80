//! The broker that the command line names.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_nats::jetstream;
use futures::future::BoxFuture;
use handfast::outbox::{
    self, Event, InProcess, JetStream, PublishError, RabbitMq, RedisStreams, Subscription,
};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};

use crate::fact::Topic;

/// The time after which an event that a consumer does not acknowledge is given to another one.
const IDLE: Duration = Duration::from_secs(5);

/// Takes events from service to service. Everything that it stores belongs to one run, and is
/// removed with it.
#[derive(Debug, Clone)]
pub(crate) enum Broker {
    /// Within this process.
    InProcess(InProcess),
    /// A stream a topic.
    Redis { streams: Box<RedisStreams>, url: String, prefix: String },
    /// A queue for each topic and consumer.
    Rabbit { rabbit: RabbitMq, url: String, exchange: String },
    /// A stream a topic.
    Nats { streams: Box<JetStream>, url: String, prefix: String },
}

impl Broker {
    /// Connects. `run` is part of all names, so that runs on one server do not meet.
    pub(crate) async fn connect(name: &str, run: &str) -> Result<Self> {
        let url = name.to_owned();
        match name.split(':').next().unwrap_or_default() {
            "in-process" => Ok(Self::InProcess(InProcess::new())),
            "redis" | "rediss" => {
                let prefix = format!("handfast:example:{run}:");
                let streams = Box::new(RedisStreams::connect(name).await?.prefix(&prefix));
                Ok(Self::Redis { streams, url, prefix })
            }
            "amqp" | "amqps" => {
                let exchange = format!("handfast.example.{run}");
                let rabbit = RabbitMq::connect(name).await?.exchange(&exchange);
                Ok(Self::Rabbit { rabbit, url, exchange })
            }
            "nats" => {
                let prefix = format!("handfast-example-{run}-");
                let streams = Box::new(JetStream::connect(name).await?.prefix(&prefix));
                Ok(Self::Nats { streams, url, prefix })
            }
            other => bail!("--broker {other}: in-process, redis://…, amqp://… or nats://…"),
        }
    }

    /// Returns whether other processes can reach it, too.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::InProcess(_))
    }

    /// Returns the events of a topic for `consumer`, from where it has stopped.
    pub(crate) async fn subscribe(
        &self,
        topic: Topic,
        consumer: &str,
    ) -> Result<Box<dyn Subscription>> {
        let name = topic.name();
        Ok(match self {
            Self::InProcess(broker) => Box::new(broker.subscribe(name)),
            Self::Redis { streams, .. } => {
                Box::new(streams.subscribe(name, consumer, consumer, IDLE).await?)
            }
            Self::Rabbit { rabbit, .. } => Box::new(rabbit.subscribe(name, consumer).await?),
            Self::Nats { streams, .. } => Box::new(streams.subscribe(name, consumer, IDLE).await?),
        })
    }

    /// Removes what the run has left with the broker. `groups` have subscribed.
    pub(crate) async fn remove(&self, groups: &[(Topic, &str)]) -> Result<()> {
        match self {
            Self::InProcess(_) => Ok(()),
            Self::Redis { url, prefix, .. } => {
                remove_keys(url, prefix).await.context("removing the streams")
            }
            Self::Rabbit { url, exchange, .. } => {
                remove_queues(url, exchange, groups).await.context("removing the queues")
            }
            Self::Nats { url, prefix, .. } => {
                remove_streams(url, prefix).await.context("removing the streams")
            }
        }
    }
}

async fn remove_keys(url: &str, prefix: &str) -> Result<()> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd("DEL");
    for topic in Topic::ALL {
        command.arg(format!("{prefix}{}", topic.name()));
    }
    Ok(command.query_async::<()>(&mut connection).await?)
}

async fn remove_queues(url: &str, exchange: &str, groups: &[(Topic, &str)]) -> Result<()> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    for (topic, group) in groups {
        let queue = format!("{exchange}.{}.{group}", topic.name());
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await?;
    Ok(())
}

async fn remove_streams(url: &str, prefix: &str) -> Result<()> {
    let streams = jetstream::new(async_nats::connect(url).await?);
    for topic in Topic::ALL {
        streams.delete_stream(format!("{prefix}{}", topic.name())).await?;
    }
    Ok(())
}

impl outbox::Broker for Broker {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        match self {
            Self::InProcess(broker) => outbox::Broker::publish(broker, event),
            Self::Redis { streams, .. } => outbox::Broker::publish(&**streams, event),
            Self::Rabbit { rabbit, .. } => outbox::Broker::publish(rabbit, event),
            Self::Nats { streams, .. } => outbox::Broker::publish(&**streams, event),
        }
    }
}
