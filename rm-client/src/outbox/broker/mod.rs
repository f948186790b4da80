//! What a relay and a consumer need from a broker, and the brokers that are built in.
//!
//! A broker delivers at least once and keeps the order of what is published one after the other.
//! That an effect happens once is not asked of it: the inbox sees to that.

mod in_process;
#[cfg(feature = "nats")]
mod jet_stream;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod one_out;
#[cfg(feature = "rabbitmq")]
mod rabbit_mq;
#[cfg(feature = "redis")]
mod redis_streams;

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

/// Somewhere that a relay publishes to.
pub trait Broker: Debug + Send + Sync {
    /// Publishes an event, and answers when the broker keeps it for certain. May be called again
    /// for an event that was published before.
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>>;
}

impl<B: Broker + ?Sized> Broker for Box<B> {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        (**self).publish(event)
    }
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker does not serve, or did not answer. The relay waits, and counts no attempt.
    #[error("broker unavailable: {reason}")]
    Unavailable {
        /// What it said.
        reason: String,
    },
    /// The broker serves and does not take this event. After so many attempts it is parked.
    #[error("broker refuses the event: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
}

/// Where a consumer gets events from.
pub trait Subscription: Send {
    /// Waits for the next event. What was delivered and not acknowledged is delivered again, to
    /// this consumer or another one.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`]: ask again.
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>>;

    /// Tells the broker that the effect of the last event is committed.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`]: it will be delivered again.
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

/// An event, and what the broker knows this delivery of it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// The broker's name for the delivery.
    pub tag: String,
}
