//! A subscription with one message in flight at a time, for any type of message.

use std::future::Future;

use super::Delivery;
use crate::outbox::error::OutboxError;

/// A broker's source of messages of one topic.
pub(super) trait Messages: Send {
    /// A message that is not settled.
    type Message: Send + Sync;

    /// Waits for the next message.
    fn pull(&mut self) -> impl Future<Output = Result<Self::Message, OutboxError>> + Send;

    /// Returns the event in a message.
    fn delivery(&self, message: &Self::Message) -> Result<Delivery, OutboxError>;

    /// Acknowledges a message to the broker, and waits until the broker has confirmed that.
    fn settle(message: &Self::Message) -> impl Future<Output = Result<(), OutboxError>> + Send;
}

/// A subscription, and its message in flight, if there is one.
#[derive(Debug)]
pub(super) struct SingleInFlight<M: Messages> {
    pub(super) messages: M,
    in_flight: Option<(String, M::Message)>,
}

impl<M: Messages> SingleInFlight<M> {
    pub(super) fn new(messages: M) -> Self {
        Self { messages, in_flight: None }
    }

    /// Returns the next event. A message without an event cannot be used by any consumer, at any
    /// time, so it is settled at once.
    pub(super) async fn next(&mut self) -> Result<Delivery, OutboxError> {
        loop {
            let message = self.messages.pull().await?;
            match self.messages.delivery(&message) {
                Ok(delivery) => {
                    self.in_flight = Some((delivery.tag.clone(), message));
                    return Ok(delivery);
                }
                Err(error) => {
                    tracing::error!(%error, "skipped a message that holds no event");
                    M::settle(&message).await?;
                }
            }
        }
    }

    /// Settles the message of a delivery, which must be the last one.
    pub(super) async fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), OutboxError> {
        match self.in_flight.take_if(|(tag, _)| *tag == delivery.tag) {
            Some((_, message)) => M::settle(&message).await,
            None => {
                let reason = format!("delivery {} is not the last one", delivery.tag);
                Err(OutboxError::BrokerUnavailable { reason })
            }
        }
    }
}
