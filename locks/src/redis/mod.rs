//! Locks in a single Redis.
//!
//! One script a request, so that nothing is ever half done, by the server's clock. Fencing tokens
//! are a counter that is never below the server's clock in microseconds: after a loss of all data
//! they go on above every old one, unless the clock was set back too. A fail-over to a replica may
//! still give the lock to two; that is why the grade is efficiency.
//!
//! The queue is a sorted set by time of arrival. A release wakes the first of it by a message on
//! its client's own channel, which is heard by nobody else; a message that is lost costs the time
//! until the waiter's next sign of life.

mod script;

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue, RedisError, Script, ScriptInvocation};
use tokio::sync::{Mutex, mpsc};

use crate::backend::{
    Answer, Ask, Backend, Grade, Hold, Leave, Left, Place, WAITER_ALIVE, WAITER_BEAT, Wake,
};
use crate::error::{BackendError, LockError};
use crate::name::{Fence, LockName, Token};
use crate::seen::Seen;

/// How long a token stays barred: longer than any request of it can be under way.
const BARRED: Duration = Duration::from_secs(60);

/// Locks in a single Redis.
#[derive(Debug)]
pub struct RedisLocks {
    client: Client,
    /// Shared by all requests; none after it failed.
    connection: Mutex<Option<MultiplexedConnection>>,
    ask: Script,
    renew: Script,
    leave: Script,
}

impl RedisLocks {
    /// Connects by URL, as `redis://127.0.0.1/`, and sees to it that the server does not throw
    /// fencing tokens away when memory is short.
    ///
    /// # Errors
    /// [`LockError::Refused`] with what the server says, or if its `maxmemory-policy` evicts keys
    /// that have no expiry.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let refused = |error| LockError::Refused { source: failed(error) };
        let locks = Self {
            client: Client::open(url).map_err(refused)?,
            connection: Mutex::new(None),
            ask: Script::new(script::ASK),
            renew: Script::new(script::RENEW),
            leave: Script::new(script::LEAVE),
        };
        let mut connection = locks.connection().await.map_err(refused)?;
        let mut command = redis::cmd("INFO");
        let memory: Result<String, _> = command.arg("memory").query_async(&mut connection).await;
        if memory.map_err(refused)?.contains("maxmemory_policy:allkeys") {
            let message = "maxmemory-policy evicts keys without expiry, and with them fencing \
                tokens: set it to noeviction or volatile-*";
            return Err(LockError::Refused { source: BackendError::lasting(message) });
        }
        Ok(locks)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let made = self.client.get_multiplexed_async_connection().await?;
        Ok(connection.insert(made).clone())
    }

    async fn call<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, BackendError> {
        let mut connection = self.connection().await.map_err(failed)?;
        let answer = invocation.invoke_async(&mut connection).await;
        if answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            // The next request makes another one.
            *self.connection.lock().await = None;
        }
        answer.map_err(failed)
    }
}

/// What the scripts answer: a fence if granted or freed, else the holder.
type Row = (i64, String, String, i64, i64);

fn seen((_, owner, label, left_ms, ahead): Row) -> Seen {
    let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
    Seen { owner, label, left, ahead }
}

#[async_trait]
impl Backend for RedisLocks {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn grade(&self) -> Grade {
        Grade::Efficiency
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        let token = ask.token.to_string();
        let place = match ask.place {
            Place::None => 0,
            Place::Join | Place::Keep => 1,
        };
        let mut call = self.ask.prepare_invoke();
        keys(&mut call, &ask.name, &token);
        call.arg(&token).arg(milliseconds(ask.lease)).arg(&ask.label).arg(place);
        call.arg(milliseconds(WAITER_ALIVE)).arg(milliseconds(WAITER_BEAT));
        let row: Row = self.call(&call).await?;
        if row.0 > 0 {
            return Ok(Answer::Granted { fence: Fence::new(row.0) });
        }
        Ok(seen(row).answer(None))
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let mut call = self.renew.prepare_invoke();
        call.arg(milliseconds(lease));
        for hold in holds {
            call.key(key(&hold.name, "")).arg(hold.token.to_string());
        }
        let held: Vec<i64> = self.call(&call).await?;
        Ok(held.into_iter().map(|held| held == 1).collect())
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        let token = leave.hold.token.to_string();
        let mut call = self.leave.prepare_invoke();
        keys(&mut call, &leave.hold.name, &token);
        call.arg(&token).arg(i64::from(leave.is_doubtful)).arg(milliseconds(BARRED));
        call.arg(CHANNEL);
        let row: Row = self.call(&call).await?;
        if row.0 > 0 {
            return Ok(Left::Freed);
        }
        Ok(Left::NotHeld { current: seen(row).holder() })
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let mut subscription = self.client.get_async_pubsub().await.map_err(failed)?;
        subscription.subscribe(format!("{CHANNEL}{client:032x}")).await.map_err(failed)?;
        // Whoever was next before may have been called already.
        let _ = wakes.send(Wake::All);
        let mut messages = subscription.on_message();
        while let Some(message) = messages.next().await {
            let token: String = message.get_payload().unwrap_or_default();
            if let Some(token) = Token::parse(&token) {
                // The receiver ends with the one who called this.
                let _ = wakes.send(Wake::One(token));
            }
        }
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        Err(BackendError::passing("the listening connection was lost", error))
    }
}

/// Before the name of the client whose waiter is woken.
const CHANNEL: &str = "handfast:lock-wake:";

/// All keys of a lock are in one slot of a cluster.
fn key(name: &LockName, part: &str) -> String {
    format!("handfast:lock:{{{name}}}{part}")
}

fn keys(call: &mut ScriptInvocation<'_>, name: &LockName, token: &str) {
    call.key(key(name, ""));
    for part in [":fence", ":queue", ":alive"] {
        call.key(key(name, part));
    }
    call.key(key(name, &format!(":barred:{token}")));
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn failed(error: RedisError) -> BackendError {
    BackendError::passing("Redis failed", error)
}
