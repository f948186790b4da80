//! Locks in a single Redis.
//!
//! One script decides a request, so that nothing is ever half done, and it uses the server's clock.
//! A lock is mostly free when it is requested, and has no waiter when it is released. For that
//! there are short ways: a script to take one lock, a command to free one, and a script for as many
//! requests as have come together. They touch nothing but locks and their counters. If they find
//! more than that, they change nothing, and the full script follows.
//!
//! Fencing tokens come from a counter that is never below the server's clock in microseconds: after
//! a loss of all data they go on above every old one, unless the clock was set back too. A
//! fail-over to a replica may still grant a lock twice, which is why the guarantee is efficiency.
//!
//! The queue is a sorted set by time of arrival. A release wakes the first waiter by a message on
//! its client's own channel, which no other client hears. A message that is lost costs the time
//! until the waiter's next heartbeat.

mod batcher;
mod node;
mod redlock;
mod script;

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use self::node::{ANSWER_WITHIN, Agreement, Node, ScriptReply};
use crate::backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, QueueMode,
    ReleaseRequest, ReleaseResponse, WakeUp,
};
use crate::error::{BackendError, LockError};
use crate::name::FencingToken;
use crate::observed_holder::ObservedHolder;

pub use self::redlock::RedlockLocks;

/// Locks in a single Redis.
#[derive(Debug)]
pub struct RedisLocks {
    node: Node,
}

impl RedisLocks {
    /// Connects by URL, as `redis://127.0.0.1/`, and checks that the server evicts nothing when
    /// memory is short.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the server's message, or if its `maxmemory-policy` is not
    /// `noeviction`: any other may evict a held lock, whose key has an expiry.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let refused = |source| LockError::Refused { source };
        let node = Node::new(url, Duration::ZERO, ANSWER_WITHIN).map_err(refused)?;
        node.check().await.map_err(refused)?;
        Ok(Self { node })
    }
}

fn observed((_, owner, label, left_ms, ahead, _): ScriptReply) -> ObservedHolder {
    let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
    ObservedHolder { owner, label, left, ahead }
}

#[async_trait]
impl Backend for RedisLocks {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Efficiency
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        // A request that has waited already finds more than a free lock.
        if request.mode == LockMode::Exclusive
            && request.queue != QueueMode::KeepPlace
            && let Some(fencing_token) = self.node.take(request).await?
        {
            return Ok(AcquireResponse::granted(FencingToken::new(fencing_token)));
        }
        let (row, _) = self.node.acquire(request, Agreement::default()).await?;
        match row.0 {
            1.. => Ok(AcquireResponse::granted(FencingToken::new(row.0))),
            0 => Ok(observed(row).answer(None)),
            permits => {
                let permits = u32::try_from(permits.unsigned_abs()).unwrap_or(u32::MAX);
                Err(BackendError::other_permits(permits))
            }
        }
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        self.node.renew(lock_refs, lease).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        // The short way bars no id and wakes no waiter.
        if request.is_uncontended
            && !request.refuse_late_requests
            && self.node.free(&request.lock_ref).await?
        {
            return Ok(ReleaseResponse::Released);
        }
        let row = self.node.release(request).await?;
        if row.0 > 0 {
            return Ok(ReleaseResponse::Released);
        }
        Ok(ReleaseResponse::NotHeld { current: observed(row).holder() })
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.node.listen(client, wake_ups).await
    }
}
