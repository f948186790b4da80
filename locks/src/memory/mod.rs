//! Locks in memory: for tests of what uses locks, and for the simulation.
//!
//! It excludes those who share one [`Memory`] from one another and nobody else. It does not survive
//! its process.

mod table;

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::backend::{Answer, Ask, Backend, Grade, Hold, Leave, Left, Wake};
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::Token;

pub(crate) use self::table::Table;

/// Locks in memory. Clones share them.
///
/// ```
/// use handfast_locks::{Locks, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_locks::LockError> {
/// let memory = Memory::new();
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
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    table: Table,
    listeners: Vec<(u128, mpsc::UnboundedSender<Wake>)>,
}

impl Memory {
    /// Without any lock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> T {
        // No step of the table panics half-way.
        work(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn wake(&mut self, next: Option<Token>) {
        let Some(next) = next else { return };
        self.listeners.retain(|(client, wakes)| {
            *client != next.client || wakes.send(Wake::One(next)).is_ok()
        });
    }
}

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    /// Among those who share it; its use in production is not its grade's business.
    fn grade(&self) -> Grade {
        Grade::Correctness
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        self.with(|shared| {
            let now = Moment::now();
            if let Some(other) = shared.table.other_parts(now, ask) {
                return Err(BackendError::other_parts(other));
            }
            let (answer, next) = shared.table.ask(now, ask);
            shared.wake(next);
            Ok(answer)
        })
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        Ok(self.with(|shared| shared.table.renew(Moment::now(), holds, lease)))
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        Ok(self.with(|shared| {
            let (left, next) = shared.table.leave(Moment::now(), leave);
            shared.wake(next);
            left
        }))
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        self.with(|shared| {
            shared.listeners.retain(|(_, wakes)| !wakes.is_closed());
            shared.listeners.push((client, wakes.clone()));
        });
        // Whoever asked before is told too.
        let _ = wakes.send(Wake::All);
        pending().await
    }
}
