//! Locks in memory, for tests of code that uses locks, and for the simulation.
//!
//! The clients of one [`MemoryLocks`] exclude each other and no others. The locks do not survive
//! the process.

mod table;

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockRef, ReleaseRequest, ReleaseResponse,
    WakeUp,
};
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::AcquisitionId;

pub(crate) use self::table::Table;

/// Locks in memory. Clones share the locks.
///
/// ```
/// use handfast_locks::{Locks, MemoryLocks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let memory = MemoryLocks::new();
/// let one = Locks::over(memory.clone()).start()?;
/// let other = Locks::over(memory).start()?;
/// let guard = one.lock("orders/42").await?;
/// assert!(other.try_lock("orders/42").await.is_err());
/// drop(guard);
/// other.lock("orders/42").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryLocks {
    shared: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    table: Table,
    listeners: Vec<(u128, mpsc::UnboundedSender<WakeUp>)>,
}

impl MemoryLocks {
    /// Makes a backend without any lock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, work: impl FnOnce(&mut MemoryState) -> T) -> T {
        // No change to the table panics half-way.
        work(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl MemoryState {
    fn wake(&mut self, next: Option<AcquisitionId>) {
        let Some(next) = next else { return };
        self.listeners.retain(|(client, wake_ups)| {
            *client != next.client || wake_ups.send(WakeUp::One(next)).is_ok()
        });
    }
}

#[async_trait]
impl Backend for MemoryLocks {
    fn name(&self) -> &'static str {
        "memory"
    }

    /// Correctness holds among the clients that share it. Whether to use it in production is
    /// another question.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Correctness
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        self.with(|shared| {
            let now = Moment::now();
            if let Some(other) = shared.table.other_permits(now, request) {
                return Err(BackendError::other_permits(other));
            }
            let (answer, next) = shared.table.acquire(now, request);
            shared.wake(next);
            Ok(answer)
        })
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        Ok(self.with(|shared| shared.table.renew(Moment::now(), lock_refs, lease)))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        Ok(self.with(|shared| {
            let (left, next) = shared.table.release(Moment::now(), request);
            shared.wake(next);
            left
        }))
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.with(|shared| {
            shared.listeners.retain(|(_, wake_ups)| !wake_ups.is_closed());
            shared.listeners.push((client, wake_ups.clone()));
        });
        // Waiters from before this call may have missed a wake-up.
        let _ = wake_ups.send(WakeUp::All);
        pending().await
    }
}
