//! Redis Streams: one stream a topic, consumers in groups.
//!
//! How much Redis keeps through a crash its own configuration says: only `appendfsync always` syncs
//! before it answers.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::streams::{StreamAutoClaimReply, StreamId, StreamReadReply};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// How long one read waits at the server.
const BLOCK: Duration = Duration::from_secs(2);
/// An answer that takes longer than this is none.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Publishes to Redis Streams. Cheap to clone.
#[derive(Clone)]
pub struct RedisStreams {
    client: redis::Client,
    connection: ConnectionManager,
    prefix: String,
}

impl fmt::Debug for RedisStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreams").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RedisStreams {
    /// Connects. The stream of a topic is `handfast:events:{topic}`.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`].
    pub async fn connect(url: &str) -> Result<Self, OutboxError> {
        let client = redis::Client::open(url).map_err(unavailable)?;
        let connection = steady_connection(&client).await.map_err(unavailable)?;
        Ok(Self { client, connection, prefix: "handfast:events:".to_owned() })
    }

    /// Sets what stands before the topic in the names of streams.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Joins a group of consumers of a topic, from the topic's beginning if the group is new. The
    /// name must be the consumer's own and the same after a restart: what it had not acknowledged
    /// is delivered to it first of all. What another consumer has not acknowledged for `idle` it
    /// takes over.
    ///
    /// # Errors
    /// [`OutboxError::BrokerUnavailable`].
    pub async fn subscribe(
        &self,
        topic: &str,
        group: &str,
        name: &str,
        idle: Duration,
    ) -> Result<RedisSubscription, OutboxError> {
        let stream = format!("{}{topic}", self.prefix);
        let mut connection = steady_connection(&self.client).await.map_err(unavailable)?;
        make_group(&mut connection, &stream, group).await.map_err(unavailable)?;
        Ok(RedisSubscription {
            connection,
            topic: topic.to_owned(),
            stream,
            group: group.to_owned(),
            name: name.to_owned(),
            idle,
            own_pending: true,
        })
    }
}

/// A connection that comes back by itself, of its own: a read that waits blocks those behind it.
async fn steady_connection(client: &redis::Client) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(ANSWER_MAX))
        .set_connection_timeout(Some(ANSWER_MAX))
        .set_number_of_retries(1);
    client.get_connection_manager_with_config(config).await
}

/// Makes a group that reads a stream from its beginning, unless there is one, and the stream.
async fn make_group(
    connection: &mut ConnectionManager,
    stream: &str,
    group: &str,
) -> Result<(), RedisError> {
    let mut command = redis::cmd("XGROUP");
    command.arg("CREATE").arg(stream).arg(group).arg("0").arg("MKSTREAM");
    match command.query_async::<()>(connection).await {
        Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Broker for RedisStreams {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        async move {
            let mut connection = self.connection.clone();
            let mut command = redis::cmd("XADD");
            command.arg(format!("{}{}", self.prefix, event.topic())).arg("*");
            command.arg("id").arg(event.id().to_string()).arg("key").arg(event.key());
            command.arg("headers").arg(event.headers_text());
            command.arg("payload").arg(event.payload_bytes());
            command.query_async::<()>(&mut connection).await.map_err(not_published)
        }
        .boxed()
    }
}

/// What Redis says about a command is about this event; everything else is about Redis.
fn not_published(error: RedisError) -> PublishError {
    let reason = error.to_string();
    // Out of memory, a replica, or a primary without its replicas: true of any other event too.
    let is_everybodys = matches!(error.code(), Some("OOM" | "READONLY" | "NOREPLICAS" | "MISCONF"));
    let is_answer = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension
    );
    if is_answer && !is_everybodys {
        PublishError::Refused { reason }
    } else {
        PublishError::Unavailable { reason }
    }
}

fn unavailable(error: RedisError) -> OutboxError {
    OutboxError::BrokerUnavailable { reason: error.to_string() }
}

/// One consumer of a group.
pub struct RedisSubscription {
    connection: ConnectionManager,
    topic: String,
    stream: String,
    group: String,
    name: String,
    idle: Duration,
    /// Whether this consumer may have unacknowledged deliveries from before.
    own_pending: bool,
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisSubscription");
        shown.field("stream", &self.stream).field("group", &self.group).field("name", &self.name);
        shown.finish_non_exhaustive()
    }
}

impl RedisSubscription {
    /// The next entry. A server that has lost its data has lost the group with it, and so has one
    /// whose stream was deleted: it is made again.
    async fn entry(&mut self) -> Result<StreamId, RedisError> {
        loop {
            match self.entry_of_group().await {
                Err(error) if error.code() == Some("NOGROUP") => {
                    let (stream, group) = (&self.stream, &self.group);
                    tracing::warn!(stream, group, "the group is lost, and made again");
                    make_group(&mut self.connection, stream, group).await?;
                    self.own_pending = true;
                }
                found => return found,
            }
        }
    }

    /// Our own unacknowledged ones first, then those of the dead, then new ones.
    async fn entry_of_group(&mut self) -> Result<StreamId, RedisError> {
        loop {
            if self.own_pending
                && let Some(entry) = self.read("0", None).await?
            {
                return Ok(entry);
            }
            // Without its answer, for an error or because this future is dropped, a read may have
            // been served all the same.
            self.own_pending = true;
            let entry = match self.take_over().await? {
                Some(entry) => Some(entry),
                None => self.read(">", Some(BLOCK)).await?,
            };
            self.own_pending = false;
            if let Some(entry) = entry {
                return Ok(entry);
            }
        }
    }

    async fn read(
        &mut self,
        from: &str,
        block: Option<Duration>,
    ) -> Result<Option<StreamId>, RedisError> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.name).arg("COUNT").arg(1);
        if let Some(block) = block {
            command.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
        }
        command.arg("STREAMS").arg(&self.stream).arg(from);
        let reply: Option<StreamReadReply> = command.query_async(&mut self.connection).await?;
        let streams = reply.map(|reply| reply.keys).unwrap_or_default();
        Ok(streams.into_iter().flat_map(|stream| stream.ids).next())
    }

    async fn take_over(&mut self) -> Result<Option<StreamId>, RedisError> {
        let idle_ms = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("XAUTOCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(&self.name).arg(idle_ms).arg("0");
        command.arg("COUNT").arg(1);
        let reply: StreamAutoClaimReply = command.query_async(&mut self.connection).await?;
        Ok(reply.claimed.into_iter().next())
    }

    async fn settle(&mut self, id: &str) -> Result<(), OutboxError> {
        let mut command = redis::cmd("XACK");
        command.arg(&self.stream).arg(&self.group).arg(id);
        command.query_async::<()>(&mut self.connection).await.map_err(unavailable)
    }

    fn delivery(&self, entry: &StreamId) -> Result<Delivery, OutboxError> {
        let text = |name: &str| entry.get::<String>(name).unwrap_or_default();
        let payload = entry.get::<Vec<u8>>("payload").unwrap_or_default();
        let (topic, headers) = (self.topic.clone(), text("headers"));
        let event = Event::restored(&text("id"), topic, text("key"), &headers, payload)?;
        Ok(Delivery { event, tag: entry.id.clone() })
    }
}

impl Subscription for RedisSubscription {
    fn next(&mut self) -> BoxFuture<'_, Result<Delivery, OutboxError>> {
        async move {
            loop {
                let entry = self.entry().await.map_err(unavailable)?;
                match self.delivery(&entry) {
                    Ok(delivery) => return Ok(delivery),
                    // Not one of ours: nobody can make anything of it, now or later.
                    Err(error) => {
                        tracing::error!(stream = self.stream, entry = entry.id, %error, "skipped");
                        self.settle(&entry.id).await?;
                    }
                }
            }
        }
        .boxed()
    }

    fn acknowledge<'s>(
        &'s mut self,
        delivery: &'s Delivery,
    ) -> BoxFuture<'s, Result<(), OutboxError>> {
        async move {
            let settled = self.settle(&delivery.tag).await;
            self.own_pending |= settled.is_err();
            settled
        }
        .boxed()
    }
}
