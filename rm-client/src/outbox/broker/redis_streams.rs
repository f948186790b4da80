//! Redis Streams: one stream per topic, consumers in groups.
//!
//! The configuration of Redis says how much it keeps through a crash: only with `appendfsync
//! always` does it sync before it answers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::streams::{StreamAutoClaimReply, StreamId, StreamReadReply};
use redis::{RedisError, ServerError};
use tokio::sync::Mutex;

use super::{Broker, Delivery, PublishError, Subscription};
use crate::outbox::error::OutboxError;
use crate::outbox::event::Event;

/// How long one read waits at the server.
const BLOCK: Duration = Duration::from_secs(2);
/// How long to wait for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Publishes to Redis Streams. Cheap to clone.
#[derive(Clone)]
pub struct RedisStreams {
    client: redis::Client,
    /// The connection that events are published on, unless its server has become a replica.
    connection: Arc<Mutex<Option<Arc<ConnectionManager>>>>,
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
        let connection = Arc::new(Mutex::new(Some(Arc::new(connection))));
        Ok(Self { client, connection, prefix: "handfast:events:".to_owned() })
    }

    /// Sets the prefix of the names of streams, which the topic follows.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Joins a group of consumers of a topic, from the topic's beginning if the group is new.
    /// `name` must belong to this consumer alone and be the same after a restart: events that the
    /// consumer had not acknowledged are delivered to it first. It takes over events that another
    /// consumer has not acknowledged for `idle`.
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
            client: self.client.clone(),
            connection,
            topic: topic.to_owned(),
            stream,
            group: group.to_owned(),
            name: name.to_owned(),
            idle,
            own_pending: true,
        })
    }

    async fn send(&self, event: &Event) -> Result<(), RedisError> {
        let connection = self.connection().await?;
        let mut command = redis::cmd("XADD");
        command.arg(format!("{}{}", self.prefix, event.topic())).arg("*");
        command.arg("id").arg(event.id().to_string()).arg("key").arg(event.key());
        command.arg("headers").arg(event.headers_text());
        command.arg("payload").arg(event.payload_bytes());
        let sent = command.query_async::<()>(&mut ConnectionManager::clone(&connection)).await;
        if sent.as_ref().is_err_and(is_from_replica) {
            // Other events that were on their way on it find a connection opened since in its
            // place, and leave that.
            let mut current = self.connection.lock().await;
            drop(current.take_if(|current| Arc::ptr_eq(current, &connection)));
        }
        sent
    }

    /// Returns the connection that events are published on, and opens it if there is none.
    async fn connection(&self) -> Result<Arc<ConnectionManager>, RedisError> {
        // Held while it is opened: all that come meanwhile need this connection, and none of their
        // own.
        let mut current = self.connection.lock().await;
        if let Some(connection) = &*current {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(steady_connection(&self.client).await?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// Opens a connection that is restored by itself. Each subscription has its own, because a blocking
/// read delays the commands behind it.
async fn steady_connection(client: &redis::Client) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(ANSWER_MAX))
        .set_connection_timeout(Some(ANSWER_MAX))
        .set_number_of_retries(1);
    client.get_connection_manager_with_config(config).await
}

/// Creates a group that reads a stream from its beginning, and the stream, unless they exist.
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
        async move { self.send(event).await.map_err(|error| not_published(&error)) }.boxed()
    }
}

/// Converts an error of publishing. The event is refused if Redis refuses this command: the name of
/// its stream belongs to something else, or its arguments are wrong. With all other codes Redis
/// refuses every event, as without a password or memory, or does not serve.
fn not_published(error: &RedisError) -> PublishError {
    let reason = error.to_string();
    // An error of connecting can have the code of an answer without being one.
    let answer = error.source().and_then(|source| source.downcast_ref::<ServerError>());
    if answer.is_some_and(|answer| matches!(answer.code(), "WRONGTYPE" | "ERR")) {
        PublishError::Refused { reason }
    } else {
        PublishError::Unavailable { reason }
    }
}

/// Returns whether the server of a connection takes no writes. After a fail-over that is a former
/// primary, which closes no connection, while the address leads to another server.
fn is_from_replica(error: &RedisError) -> bool {
    error.code() == Some("READONLY")
}

fn unavailable(error: RedisError) -> OutboxError {
    OutboxError::BrokerUnavailable { reason: error.to_string() }
}

/// A consumer of a group.
pub struct RedisSubscription {
    client: redis::Client,
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
    /// Returns the next entry. If the server has lost its data, or the stream was deleted, the
    /// group is lost too and is created again. If the server has become a replica, the next attempt
    /// is made on another connection.
    async fn entry(&mut self) -> Result<StreamId, RedisError> {
        loop {
            match self.entry_of_group().await {
                Err(error) if error.code() == Some("NOGROUP") => {
                    let (stream, group) = (&self.stream, &self.group);
                    tracing::warn!(stream, group, "the group is lost, creating it again");
                    make_group(&mut self.connection, stream, group).await?;
                    self.own_pending = true;
                }
                Err(error) if is_from_replica(&error) => {
                    self.connection = steady_connection(&self.client).await?;
                    // The caller pauses after an error. While there is no primary, this would go
                    // round without a pause.
                    return Err(error);
                }
                found => return found,
            }
        }
    }

    /// Returns an entry that this consumer has not acknowledged, else one of a dead consumer, else
    /// a new one.
    async fn entry_of_group(&mut self) -> Result<StreamId, RedisError> {
        loop {
            if self.own_pending
                && let Some(entry) = self.read("0", None).await?
            {
                return Ok(entry);
            }
            // A read without an answer, because of an error or because this future is dropped, may
            // have been served all the same.
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
                    // Not an event: no consumer can use the entry, at any time.
                    Err(error) => {
                        tracing::error!(stream = self.stream, entry = entry.id, %error, "skipped an entry that holds no event");
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
            // Without an answer the entry may still be pending. It is read first then, so that the
            // order is kept.
            self.own_pending |= settled.is_err();
            settled
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_the_command_are_refusals_of_the_event() {
        let is_refused = |reply: &str| {
            let reply = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
            let error = reply.extract_error().unwrap_err();
            matches!(not_published(&error), PublishError::Refused { .. })
        };
        assert!(is_refused("WRONGTYPE Operation against a key holding the wrong kind of value"));
        assert!(is_refused("ERR wrong number of arguments for 'xadd' command"));
        let of_all_events = [
            "BUSY Redis is busy running a script",
            "CLUSTERDOWN The cluster is down",
            "DENIED Redis is running in protected mode",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down",
            "MISCONF Redis is configured to save RDB snapshots",
            "MOVED 3999 127.0.0.1:6381",
            "NOAUTH Authentication required.",
            "NOPERM this user has no permissions to run the 'xadd' command",
            "NOREPLICAS Not enough good replicas to write.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
        ];
        for reply in of_all_events {
            assert!(!is_refused(reply), "{reply}");
        }
    }

    #[test]
    fn an_error_of_connecting_is_no_refusal() {
        let kind = redis::ErrorKind::Server(redis::ServerErrorKind::ResponseError);
        let error = RedisError::from((kind, "Redis server refused to switch database"));
        assert_eq!(error.code(), Some("ERR"));
        assert!(matches!(not_published(&error), PublishError::Unavailable { .. }));
    }
}
