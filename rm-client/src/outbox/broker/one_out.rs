//! A subscription that lets one message be out at a time, over whatever the broker calls a message.

use std::future::Future;

use super::Delivery;
use crate::outbox::error::OutboxError;

/// Messages of one topic, as a broker hands them out.
pub(super) trait Messages: Send {
    /// One of them, until it is settled.
    type Message: Send + Sync;

    /// Waits for the next one.
    fn pull(&mut self) -> impl Future<Output = Result<Self::Message, OutboxError>> + Send;

    /// The event in it.
    fn delivery(&self, message: &Self::Message) -> Result<Delivery, OutboxError>;

    /// Tells the broker that it is done with, and waits until the broker knows.
    fn settle(message: &Self::Message) -> impl Future<Output = Result<(), OutboxError>> + Send;
}

/// The message that is out, if one is.
#[derive(Debug)]
pub(super) struct OneOut<M: Messages> {
    pub(super) messages: M,
    out: Option<(String, M::Message)>,
}

impl<M: Messages> OneOut<M> {
    pub(super) fn new(messages: M) -> Self {
        Self { messages, out: None }
    }

    /// The next event. What holds none is nobody's, now or later, and is settled at once.
    pub(super) async fn next(&mut self) -> Result<Delivery, OutboxError> {
        loop {
            let message = self.messages.pull().await?;
            match self.messages.delivery(&message) {
                Ok(delivery) => {
                    self.out = Some((delivery.tag.clone(), message));
                    return Ok(delivery);
                }
                Err(error) => {
                    tracing::error!(%error, "skipped a message that holds no event");
                    M::settle(&message).await?;
                }
            }
        }
    }

    /// Settles the message of this delivery, the last one.
    pub(super) async fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), OutboxError> {
        match self.out.take_if(|(tag, _)| *tag == delivery.tag) {
            Some((_, message)) => M::settle(&message).await,
            None => {
                let reason = format!("delivery {} is not the last one", delivery.tag);
                Err(OutboxError::BrokerUnavailable { reason })
            }
        }
    }
}
