//! RabbitMQ: one exchange, the topic as routing key, one durable queue a group.
//!
//! Messages are persistent and confirmed by the server (publisher confirms). They are *mandatory*:
//! an event that no group's queue would get is refused, because RabbitMQ keeps events in queues
//! alone. What the server hands back does not say which publish it was: so a channel has one
//! publish under way at a time, and there are several channels.

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

use super::one_out::{Messages, OneOut};
use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// An answer that takes longer than this is none.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Publishes under way at the most, each on a channel of its own (BOUNDED). More of them wait.
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

/// The channels that events are published on. Whoever publishes has one to himself.
struct Publishers {
    places: Semaphore,
    /// Those that nobody publishes on: nothing on them waits for its confirmation.
    free: Mutex<Vec<Open>>,
    /// What all of them live on, until it breaks.
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
        // Every change is one call, so a panic elsewhere leaves nothing half done.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel in confirm mode, and the connection that it lives on.
struct Open {
    channel: Channel,
    _connection: Arc<Connection>,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may hold a password.
        f.debug_struct("RabbitMq").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// Connects, and again when the connection has broken. The exchange is `handfast.events`.
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
        // The channels have made the other one.
        self.publishers = Arc::default();
        self
    }

    /// Joins a group of consumers of a topic: makes the group's queue, which gets every event from
    /// then on, if it is new. One consumer of a group is served at a time, with one event at a
    /// time, and another one when its connection has ended, so that the order of the topic is kept.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`], and [`OutboxError::Malformed`] for names longer than
    /// RabbitMQ's 255 bytes.
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<RabbitMqSubscription, OutboxError> {
        let topic = topic.to_owned();
        let queue = short(&format!("{}.{topic}.{group}", self.exchange))?;
        let consumer = Some(consume(self, &topic, &queue).await?);
        let consumed = Consumed { rabbit: self.clone(), topic, queue, consumer };
        Ok(RabbitMqSubscription(OneOut::new(consumed)))
    }

    async fn connection(&self) -> lapin::Result<Arc<Connection>> {
        let name = LongString::from("handfast");
        let properties = ConnectionProperties::default().with_connection_name(name);
        Ok(Arc::new(Connection::connect(&self.url, properties).await?))
    }

    /// A channel to publish on, which nobody else has.
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
        let published = judged(confirmation, &id);
        // A channel whose publish was cut off never comes here: its late answer would be taken for
        // that of the next publish. Nor does one that answered what was not asked.
        if !matches!(published, Err(PublishError::Unavailable { .. })) {
            self.publishers.free().push(open);
        }
        published
    }
}

impl Open {
    /// A channel on which the exchange is known.
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

/// What the server's confirmation means for the event of this id.
fn judged(confirmation: Confirmation, id: &ShortString) -> Result<(), PublishError> {
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(returned))
            if returned.properties.message_id().as_ref() != Some(id) =>
        {
            Err(PublishError::Unavailable { reason: "it hands back another event".to_owned() })
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

/// A name, as the protocol limits it.
fn short(name: &str) -> Result<ShortString, OutboxError> {
    let malformed = |reason: String| OutboxError::Malformed { reason };
    ShortString::try_new(name.to_owned())
        .map_err(|error| malformed(format!("`{name}` as a name for RabbitMQ: {error}")))
}

/// The same, where it is the event's fault.
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

/// One consumer of a group.
pub struct RabbitMqSubscription(OneOut<Consumed>);

/// The messages of a group's queue.
struct Consumed {
    rabbit: RabbitMq,
    topic: String,
    queue: ShortString,
    /// None after its channel has broken.
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

/// Makes the queue if it is new, and asks for its messages on a connection of its own.
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
