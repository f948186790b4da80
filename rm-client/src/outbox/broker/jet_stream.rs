//! NATS JetStream: one stream and one subject per topic, durable pull consumers as groups.
//!
//! A stream stores an event once, however often it is published within [`DUPLICATES_KNOWN_FOR`]:
//! the event's id is the message id. The server's configuration (`sync_interval`) says when it
//! syncs its files. A stream of three replicas does not depend on it.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode, Message, stream};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::single_in_flight::{Messages, SingleInFlight};
use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// How long to wait for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long one pull waits at the server.
const PULL: Duration = Duration::from_secs(5);
/// How long the server remembers the ids of messages.
const DUPLICATES_KNOWN_FOR: Duration = Duration::from_secs(120);

/// The longest name of a stream or consumer, in bytes.
const NAME_MAX: usize = 255;

/// The header by which the server recognises a message that it already has.
const ID: &str = "Nats-Msg-Id";
const KEY: &str = "Handfast-Key";
const HEADERS: &str = "Handfast-Headers";

/// Publishes to NATS JetStream. Cheap to clone.
#[derive(Clone)]
pub struct JetStream {
    context: Context,
    prefix: String,
    replicas: usize,
    /// The topics whose stream is known to exist.
    streams: Arc<Mutex<HashSet<String>>>,
}

impl fmt::Debug for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStream").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl JetStream {
    /// Connects. From then on the connection is restored by itself. The stream of a topic is
    /// `handfast-events-{topic}`. It is created when it is first needed, without limits.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`].
    pub async fn connect(url: &str) -> Result<Self, OutboxError> {
        let options = async_nats::ConnectOptions::new()
            .connection_timeout(ANSWER_MAX)
            .request_timeout(Some(ANSWER_MAX));
        let client = options.connect(url).await.map_err(unavailable)?;
        let mut context = jetstream::new(client);
        context.set_timeout(ANSWER_MAX);
        let prefix = "handfast-events-".to_owned();
        Ok(Self { context, prefix, replicas: 1, streams: Arc::default() })
    }

    /// Sets the prefix of the names of streams and subjects, which the topic follows: letters,
    /// digits, `-` and `_`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets on how many servers of a cluster new streams are stored: 1 to 5.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Joins a group of consumers of a topic, from the topic's beginning if the group is new. One
    /// event of the topic is in flight in the group at a time, so that the order is kept whichever
    /// consumer gets it. An event that is not acknowledged for `idle` is delivered again.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`].
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
        idle: Duration,
    ) -> Result<JetStreamSubscription, OutboxError> {
        let (topic, durable) = (topic.to_owned(), encoded_name(group));
        let mut pulled = Pulled { broker: self.clone(), topic, durable, idle, consumer: None };
        pulled.consumer = Some(pulled.join().await?);
        Ok(JetStreamSubscription(SingleInFlight::new(pulled)))
    }

    fn stream_of(&self, topic: &str) -> stream::Config {
        let name = self.name_of(topic);
        stream::Config {
            subjects: vec![name.clone()],
            name,
            duplicate_window: DUPLICATES_KNOWN_FOR,
            num_replicas: self.replicas,
            ..stream::Config::default()
        }
    }

    fn name_of(&self, topic: &str) -> String {
        format!("{}{}", self.prefix, encoded_name(topic))
    }

    async fn send(&self, event: &Event) -> Result<(), PublishError> {
        let topic = event.topic();
        let name = self.name_of(topic);
        if name.len() > NAME_MAX {
            let reason = format!("the stream's name has {} bytes: at most {NAME_MAX}", name.len());
            return Err(PublishError::Refused { reason });
        }
        if !self.known_streams().contains(topic) {
            self.context
                .get_or_create_stream(self.stream_of(topic))
                .await
                .map_err(|error| PublishError::Unavailable { reason: error.to_string() })?;
            self.known_streams().insert(topic.to_owned());
        }
        let payload = event.payload_bytes().to_vec().into();
        let sent = self.context.publish_with_headers(name, headers(event)?, payload);
        let confirmed = match sent.await {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        // A duplicate counts as published too: the server stored it the first time.
        confirmed.map(drop).map_err(|error| {
            if error.kind() == PublishErrorKind::StreamNotFound {
                // The stream was deleted. The next attempt creates it again.
                self.known_streams().remove(topic);
            }
            not_published(&error)
        })
    }

    fn known_streams(&self) -> MutexGuard<'_, HashSet<String>> {
        // Every change is a single call, so the set is consistent even after a panic elsewhere.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker for JetStream {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        self.send(event).boxed()
    }
}

/// Encodes a name for subjects, streams and consumers of NATS: characters other than letters,
/// digits, `-` and `_` become their bytes in hexadecimal, such as `=2E` for a dot.
fn encoded_name(name: &str) -> String {
    use std::fmt::Write as _;

    let mut encoded_name = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            encoded_name.push(char::from(byte));
        } else {
            let _ = write!(encoded_name, "={byte:02X}");
        }
    }
    encoded_name
}

/// Returns the message's headers. Key and headers are written as JSON, which has no line breaks,
/// since a key may hold any character.
fn headers(event: &Event) -> Result<HeaderMap, PublishError> {
    let key = serde_json::to_string(event.key());
    let key = key.map_err(|error| PublishError::Refused { reason: error.to_string() })?;
    let mut headers = HeaderMap::new();
    headers.insert(ID, event.id().to_string());
    headers.insert(KEY, key);
    headers.insert(HEADERS, event.headers_text());
    Ok(headers)
}

/// Converts an error of publishing. Only an event that is too large is refused; all other errors
/// concern NATS as a whole.
fn not_published(error: &jetstream::context::PublishError) -> PublishError {
    use std::error::Error as _;

    let server = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    let is_too_large = error.kind() == PublishErrorKind::MaxPayloadExceeded
        || server.is_some_and(|server| {
            let code = server.error_code();
            code == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
                || code == ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM
        });
    let reason = error.to_string();
    if is_too_large {
        PublishError::Refused { reason }
    } else {
        PublishError::Unavailable { reason }
    }
}

fn unavailable(error: impl fmt::Display) -> OutboxError {
    OutboxError::BrokerUnavailable { reason: error.to_string() }
}

/// A consumer of a group.
pub struct JetStreamSubscription(SingleInFlight<Pulled>);

/// The source of messages that a consumer pulls.
struct Pulled {
    broker: JetStream,
    topic: String,
    /// The group, as the name of its consumer.
    durable: String,
    idle: Duration,
    /// The consumer, if the last pull has shown that the server has it.
    consumer: Option<PullConsumer>,
}

impl Pulled {
    /// Returns the consumer of the group. Creates it, and the stream, unless they exist.
    async fn join(&self) -> Result<PullConsumer, OutboxError> {
        let stream = self.broker.stream_of(&self.topic);
        let stream = self.broker.context.get_or_create_stream(stream).await.map_err(unavailable)?;
        let wanted = pull::Config {
            durable_name: Some(self.durable.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.idle,
            max_ack_pending: 1,
            ..pull::Config::default()
        };
        stream.get_or_create_consumer(&self.durable, wanted).await.map_err(unavailable)
    }
}

impl fmt::Debug for JetStreamSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = &self.0.messages.topic;
        f.debug_struct("JetStreamSubscription").field("topic", topic).finish_non_exhaustive()
    }
}

impl Messages for Pulled {
    type Message = Message;

    async fn pull(&mut self) -> Result<Message, OutboxError> {
        loop {
            // A server that was started without its data, or whose stream or consumer was deleted,
            // does not answer a pull: the wait ends as if no event had come. So only a message
            // shows that the consumer is there.
            let consumer = match self.consumer.take() {
                Some(consumer) => consumer,
                None => self.join().await?,
            };
            let batch = consumer.fetch().max_messages(1).expires(PULL).messages().await;
            let mut batch = batch.map_err(unavailable)?;
            if let Some(message) = batch.next().await {
                let message = message.map_err(unavailable)?;
                self.consumer = Some(consumer);
                return Ok(message);
            }
        }
    }

    fn delivery(&self, message: &Message) -> Result<Delivery, OutboxError> {
        let malformed = |reason: String| OutboxError::Malformed { reason };
        let header = |name: &str| {
            let value = message.headers.as_ref().and_then(|headers| headers.get(name));
            value.map(|value| value.as_str().to_owned()).unwrap_or_default()
        };
        let key = serde_json::from_str(&header(KEY));
        let key = key.map_err(|error| malformed(format!("its key: {error}")))?;
        let payload = message.payload.to_vec();
        let (id, headers) = (header(ID), header(HEADERS));
        let event = Event::restored(&id, self.topic.clone(), key, &headers, payload)?;
        let tag = message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(Delivery { event, tag })
    }

    async fn settle(message: &Message) -> Result<(), OutboxError> {
        message.double_ack().await.map_err(unavailable)
    }
}

impl Subscription for JetStreamSubscription {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        self.0.next().boxed()
    }

    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>> {
        self.0.acknowledge(delivery).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_are_encoded_differently() {
        assert_eq!(encoded_name("orders-7_A"), "orders-7_A");
        assert_eq!(encoded_name("a.b"), "a=2Eb");
        assert_eq!(encoded_name("a=2Eb"), "a=3D2Eb");
        assert_eq!(encoded_name("> *ä"), "=3E=20=2A=C3=A4");
    }
}
