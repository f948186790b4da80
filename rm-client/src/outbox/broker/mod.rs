//! The traits that a relay and a consumer need from a broker, and the built-in brokers.
//!
//! A broker delivers at least once, and keeps the order of messages that are published one after
//! the other. It need not prevent repeated effects: the inbox does that.

mod in_process;
#[cfg(feature = "nats")]
mod jet_stream;
#[cfg(feature = "rabbitmq")]
mod rabbit_mq;
#[cfg(feature = "redis")]
mod redis_streams;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod single_in_flight;

use std::fmt::Debug;

use futures::future::BoxFuture;

pub use self::in_process::{InProcess, InProcessSubscription};
#[cfg(feature = "nats")]
pub use self::jet_stream::{JetStream, JetStreamSubscription};
#[cfg(feature = "rabbitmq")]
pub use self::rabbit_mq::{RabbitMq, RabbitMqSubscription};
#[cfg(feature = "redis")]
pub use self::redis_streams::{RedisStreams, RedisSubscription};
use super::error::OutboxError;
use super::event::Event;

/// A broker that a relay publishes to.
pub trait Broker: Debug + Send + Sync {
    /// Publishes an event, and returns when the broker has confirmed it. May be called again for an
    /// event that was published before.
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>>;
}

impl<B: Broker + ?Sized> Broker for Box<B> {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        (**self).publish(event)
    }
}

/// The reason why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker does not serve, or did not answer. The relay waits and counts no attempt.
    #[error("broker unavailable: {reason}")]
    Unavailable {
        /// The error of the broker.
        reason: String,
    },
    /// The broker serves and refuses this event. After the configured number of attempts the event
    /// is parked.
    #[error("broker refuses the event: {reason}")]
    Refused {
        /// The error of the broker.
        reason: String,
    },
}

/// A source of events for a consumer.
pub trait Subscription: Send {
    /// Waits for the next event. An event that was delivered and not acknowledged is delivered
    /// again, to this consumer or another one.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`]: call it again.
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>>;

    /// Acknowledges the last event: its effect is committed.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`]: the event will be delivered again.
    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>>;
}

impl<S: Subscription + ?Sized> Subscription for Box<S> {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        (**self).next()
    }

    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>> {
        (**self).acknowledge(delivery)
    }
}

/// A delivery of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The event that the message carries.
    pub event: Event,
    /// The broker's identifier of the delivery.
    pub tag: String,
}
