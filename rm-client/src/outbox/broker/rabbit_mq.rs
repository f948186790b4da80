//! RabbitMQ: one exchange, the topic as routing key, one durable queue per group.
//!
//! Messages are persistent and confirmed by the server (publisher confirms). They are *mandatory*:
//! an event that no group's queue would get is refused, because RabbitMQ stores events only in
//! queues. A message that the server returns does not say which publish it belongs to. So each
//! channel has one publish under way at a time, and there are several channels.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use lapin::message::Delivery as Message;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
};
use tokio::sync::Semaphore;

use super::single_in_flight::{Messages, SingleInFlight};
use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// How long to wait for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The most publishes under way, each on a channel of its own (BOUNDED). Further ones wait.
const CHANNELS_MAX: usize = 16;
/// The delivery mode of a message that the server writes to disk.
const PERSISTENT: u8 = 2;

const KEY: &str = "handfast-key";
const HEADERS: &str = "handfast-headers";

/// Publishes to RabbitMQ. Cheap to clone.
#[derive(Clone)]
pub struct RabbitMq {
    url: String,
    exchange: String,
    publishers: Arc<Publishers>,
}

/// The channels that events are published on. Each publish has a channel to itself.
struct Publishers {
    places: Semaphore,
    /// The idle channels: no publish on them waits for its confirmation.
    free: Mutex<Vec<Open>>,
    /// The connection of all channels, until it breaks.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

impl Default for Publishers {
    fn default() -> Self {
        let places = Semaphore::new(CHANNELS_MAX);
        Self { places, free: Mutex::default(), connection: tokio::sync::Mutex::default() }
    }
}

impl Publishers {
    fn free(&self) -> MutexGuard<'_, Vec<Open>> {
        // Every change is a single call, so the list is consistent even after a panic elsewhere.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel in confirm mode, and its connection, which it keeps open.
struct Open {
    channel: Channel,
    _connection: Arc<Connection>,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL is left out, since it may hold a password.
        f.debug_struct("RabbitMq").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// Connects, and reconnects when the connection has broken. The exchange is `handfast.events`.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`].
    pub async fn connect(url: &str) -> Result<Self, OutboxError> {
        let exchange = "handfast.events".to_owned();
        let rabbit = Self { url: url.to_owned(), exchange, publishers: Arc::default() };
        let open = answered(rabbit.publisher(short(&rabbit.exchange)?)).await?;
        rabbit.publishers.free().push(open);
        Ok(rabbit)
    }

    /// Sets the name of the exchange.
    #[must_use]
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = exchange.into();
        // The existing channels have declared the other exchange.
        self.publishers = Arc::default();
        self
    }

    /// Joins a group of consumers of a topic. If the group is new, this creates its queue, which
    /// gets every event from then on. The server serves one consumer of a group at a time, with one
    /// event at a time, and another one when that connection has ended, so that the order of the
    /// topic is kept.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`], and [`OutboxError::Malformed`] for names longer than
    /// RabbitMQ's limit of 255 bytes.
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<RabbitMqSubscription, OutboxError> {
        let topic = topic.to_owned();
        let queue = short(&format!("{}.{topic}.{group}", self.exchange))?;
        let consumer = Some(consume(self, &topic, &queue).await?);
        let consumed = Consumed { rabbit: self.clone(), topic, queue, consumer };
        Ok(RabbitMqSubscription(SingleInFlight::new(consumed)))
    }

    async fn connection(&self) -> lapin::Result<Arc<Connection>> {
        let name = LongString::from("handfast");
        let properties = ConnectionProperties::default().with_connection_name(name);
        Ok(Arc::new(Connection::connect(&self.url, properties).await?))
    }

    /// Returns a channel to publish on, for the caller alone.
    async fn publisher(&self, exchange: ShortString) -> lapin::Result<Open> {
        let is_open = |open: &Open| open.channel.status().connected();
        let free = {
            let mut free = self.publishers.free();
            free.retain(is_open);
            free.pop()
        };
        if let Some(open) = free {
            return Ok(open);
        }
        // Locked while it connects, so that publishes that come together share one connection.
        let mut kept = self.publishers.connection.lock().await;
        let connection = match kept.take_if(|connection| connection.status().connected()) {
            Some(connection) => connection,
            None => self.connection().await?,
        };
        *kept = Some(Arc::clone(&connection));
        drop(kept);
        Open::new(connection, exchange).await
    }

    async fn send(&self, event: &Event) -> Result<(), PublishError> {
        let (exchange, topic) = (named(&self.exchange)?, named(event.topic())?);
        let id = named(&event.id().to_string())?;
        let properties = properties(event)?.with_message_id(id.clone());
        let _place = self
            .publishers
            .places
            .acquire()
            .await
            .map_err(|closed| PublishError::Unavailable { reason: closed.to_string() })?;
        let confirmed = answered(async {
            let open = self.publisher(exchange.clone()).await?;
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let payload = event.payload_bytes();
            let sent = open.channel.basic_publish(exchange, topic, options, payload, properties);
            Ok((sent.await?.await?, open))
        });
        let (confirmation, open) = confirmed.await.map_err(not_reached)?;
        let published = interpret_confirmation(confirmation, &id);
        // A channel whose publish was cut off never becomes idle again: its late answer would be
        // taken for that of the next publish. Neither does a channel that returned another event.
        if !matches!(published, Err(PublishError::Unavailable { .. })) {
            self.publishers.free().push(open);
        }
        published
    }
}

impl Open {
    /// Opens a channel and declares the exchange on it.
    async fn new(connection: Arc<Connection>, exchange: ShortString) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel
            .exchange_declare(exchange, ExchangeKind::Direct, durable, FieldTable::default())
            .await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { channel, _connection: connection })
    }
}

impl Broker for RabbitMq {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        self.send(event).boxed()
    }
}

/// Interprets the server's confirmation for the event of this id.
fn interpret_confirmation(
    confirmation: Confirmation,
    id: &ShortString,
) -> Result<(), PublishError> {
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(returned))
            if returned.properties.message_id().as_ref() != Some(id) =>
        {
            Err(PublishError::Unavailable {
                reason: "the server returned another event".to_owned(),
            })
        }
        Confirmation::Ack(Some(returned)) => {
            let reason = format!(
                "no queue gets it ({}): a group subscribes to the topic first",
                returned.reply_text
            );
            Err(PublishError::Refused { reason })
        }
        Confirmation::Nack(_) => {
            Err(PublishError::Unavailable { reason: "a queue could not keep it".to_owned() })
        }
        Confirmation::NotRequested => {
            Err(PublishError::Unavailable { reason: "the channel confirms nothing".to_owned() })
        }
    }
}

fn properties(event: &Event) -> Result<BasicProperties, PublishError> {
    let mut headers = FieldTable::default();
    let text = |text: String| AMQPValue::LongString(LongString::from(text));
    headers.insert(named(KEY)?, text(event.key().to_owned()));
    headers.insert(named(HEADERS)?, text(event.headers_text()));
    Ok(BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(headers))
}

/// Converts a name to the protocol's type, which limits its length.
fn short(name: &str) -> Result<ShortString, OutboxError> {
    let malformed = |reason: String| OutboxError::Malformed { reason };
    ShortString::try_new(name.to_owned())
        .map_err(|error| malformed(format!("`{name}` as a name for RabbitMQ: {error}")))
}

/// The same as [`short`], for a name that comes from the event.
fn named(name: &str) -> Result<ShortString, PublishError> {
    short(name).map_err(|error| PublishError::Refused { reason: error.to_string() })
}

async fn answered<T>(call: impl Future<Output = lapin::Result<T>>) -> Result<T, OutboxError> {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(answer) => answer.map_err(unavailable),
        Err(_) => Err(unavailable(format!("no answer in {} s", ANSWER_MAX.as_secs()))),
    }
}

fn unavailable(error: impl fmt::Display) -> OutboxError {
    OutboxError::BrokerUnavailable { reason: error.to_string() }
}

fn not_reached(error: OutboxError) -> PublishError {
    PublishError::Unavailable { reason: error.to_string() }
}

/// A consumer of a group.
pub struct RabbitMqSubscription(SingleInFlight<Consumed>);

/// The messages of a group's queue.
struct Consumed {
    rabbit: RabbitMq,
    topic: String,
    queue: ShortString,
    /// `None` after the channel has broken.
    consumer: Option<Consuming>,
}

struct Consuming {
    messages: lapin::Consumer,
    _open: Open,
}

impl fmt::Debug for RabbitMqSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.0.messages.queue.as_str();
        f.debug_struct("RabbitMqSubscription").field("queue", &queue).finish_non_exhaustive()
    }
}

impl Messages for Consumed {
    type Message = Message;

    async fn pull(&mut self) -> Result<Message, OutboxError> {
        let Self { rabbit, topic, queue, .. } = &*self;
        let consuming = match &self.consumer {
            Some(consuming) => consuming.messages.clone(),
            None => {
                let consuming = consume(rabbit, topic, queue).await?;
                self.consumer.insert(consuming).messages.clone()
            }
        };
        let message = next_of(consuming).await;
        if message.is_err() {
            self.consumer = None;
        }
        message
    }

    fn delivery(&self, message: &Message) -> Result<Delivery, OutboxError> {
        let header = |name: &str| {
            let headers = message.properties.headers().as_ref();
            let value = headers.and_then(|headers| headers.inner().get(name));
            let text = value.and_then(AMQPValue::as_long_string);
            text.map(ToString::to_string).unwrap_or_default()
        };
        let id = message.properties.message_id().as_ref().map(ShortString::as_str);
        let (topic, headers) = (self.topic.clone(), header(HEADERS));
        let payload = message.data.clone();
        let event = Event::restored(id.unwrap_or_default(), topic, header(KEY), &headers, payload)?;
        Ok(Delivery { event, tag: message.delivery_tag.to_string() })
    }

    async fn settle(message: &Message) -> Result<(), OutboxError> {
        let known = answered(message.ack(BasicAckOptions::default())).await?;
        if known { Ok(()) } else { Err(unavailable("the channel of the delivery has ended")) }
    }
}

/// Declares the queue, and consumes its messages on a connection of its own.
async fn consume(
    rabbit: &RabbitMq,
    topic: &str,
    queue: &ShortString,
) -> Result<Consuming, OutboxError> {
    let (exchange, topic) = (short(&rabbit.exchange)?, short(topic)?);
    let connected = async { Open::new(rabbit.connection().await?, exchange.clone()).await };
    let open = answered(connected).await?;
    let mut single = FieldTable::default();
    single.insert(short("x-single-active-consumer")?, AMQPValue::Boolean(true));
    let channel = &open.channel;
    let messages = answered(async {
        channel.queue_declare(queue.clone(), QueueDeclareOptions::durable(), single).await?;
        let bind = QueueBindOptions::default();
        channel.queue_bind(queue.clone(), exchange, topic, bind, FieldTable::default()).await?;
        channel.basic_qos(1, BasicQosOptions::default()).await?;
        let (tag, options) = (ShortString::default(), BasicConsumeOptions::default());
        channel.basic_consume(queue.clone(), tag, options, FieldTable::default()).await
    });
    Ok(Consuming { messages: messages.await?, _open: open })
}

async fn next_of(mut messages: lapin::Consumer) -> Result<Message, OutboxError> {
    let message = messages.next().await;
    message.ok_or_else(|| unavailable("the server has ended the consumer"))?.map_err(unavailable)
}

impl Subscription for RabbitMqSubscription {
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
