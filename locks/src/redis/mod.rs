//! Locks in a single Redis.
//!
//! One script decides a request, so that nothing is ever half done, by the server's clock. A lock
//! is mostly free when it is asked for, and wanted by nobody else when it is released: for that
//! there are short ways, a script to take one, a command to free one, and a script for as many
//! requests as have come together. They touch nothing but locks and their counters. Where they find
//! more than that, they change nothing, and the full script follows.
//!
//! Fencing tokens are a counter that is never below the server's clock in microseconds: after a
//! loss of all data they go on above every old one, unless the clock was set back too. A fail-over
//! to a replica may still give the lock to two; that is why the grade is efficiency.
//!
//! The queue is a sorted set by time of arrival. A release wakes the first of it by a message on
//! its client's own channel, which is heard by nobody else; a message that is lost costs the time
//! until the waiter's next sign of life.

mod gather;
mod node;
mod redlock;
mod script;

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use self::node::{ANSWER_WITHIN, Agreed, Node, Row};
use crate::backend::{Answer, Ask, Backend, Grade, Hold, Leave, Left, Place, Share, Wake};
use crate::error::{BackendError, LockError};
use crate::name::Fence;
use crate::seen::Seen;

pub use self::redlock::RedlockLocks;

/// Locks in a single Redis.
#[derive(Debug)]
pub struct RedisLocks {
    node: Node,
}

impl RedisLocks {
    /// Connects by URL, as `redis://127.0.0.1/`, and sees to it that the server does not throw
    /// fencing tokens away when memory is short.
    ///
    /// # Errors
    /// [`LockError::Refused`] with what the server says, or if its `maxmemory-policy` evicts keys
    /// that have no expiry.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let refused = |source| LockError::Refused { source };
        let node = Node::new(url, Duration::ZERO, ANSWER_WITHIN).map_err(refused)?;
        node.check().await.map_err(refused)?;
        Ok(Self { node })
    }
}

fn seen((_, owner, label, left_ms, ahead, _): Row) -> Seen {
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
        // Whoever has waited already finds more than a free lock.
        if ask.share == Share::All
            && ask.place != Place::Keep
            && let Some(fence) = self.node.take(ask).await?
        {
            return Ok(Answer::granted(Fence::new(fence)));
        }
        let (row, _) = self.node.ask(ask, Agreed::default()).await?;
        match row.0 {
            1.. => Ok(Answer::granted(Fence::new(row.0))),
            0 => Ok(seen(row).answer(None)),
            parts => {
                let parts = u32::try_from(parts.unsigned_abs()).unwrap_or(u32::MAX);
                Err(BackendError::other_parts(parts))
            }
        }
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        self.node.renew(holds, lease).await
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        if leave.is_alone && !leave.is_doubtful && self.node.free(&leave.hold).await? {
            return Ok(Left::Freed);
        }
        let row = self.node.leave(leave).await?;
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
        self.node.listen(client, wakes).await
    }
}
