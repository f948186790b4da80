//! Timers, by time. Timers of the same time fire in the order in which they were set.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::World;

type Key = (u64, u64);

/// The wakers of all sleeping tasks.
#[derive(Debug, Default)]
pub(super) struct Timers {
    wakers: BTreeMap<Key, Waker>,
    last: u64,
}

impl Timers {
    /// Removes the next timer and returns it with its time.
    pub(super) fn pop(&mut self) -> Option<(u64, Waker)> {
        self.wakers.pop_first().map(|((at, _), waker)| (at, waker))
    }

    /// Sets a timer.
    pub(super) fn set(&mut self, at: u64, waker: Waker) -> Key {
        self.last += 1;
        let key = (at, self.last);
        self.wakers.insert(key, waker);
        key
    }
}

/// A future that ends at a point in time.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// Weak, because the world's timers keep the wakers of sleeping tasks.
    world: Weak<World>,
    at: u64,
    key: Option<Key>,
}

impl Sleep {
    pub(super) fn until(world: &Arc<World>, at: u64) -> Self {
        Self { world: Arc::downgrade(world), at, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(world) = self.world.upgrade() else { return Poll::Pending };
        let mut state = world.lock();
        if let Some(key) = self.key.take() {
            state.timers.wakers.remove(&key);
        }
        if state.now >= self.at {
            return Poll::Ready(());
        }
        self.key = Some(state.timers.set(self.at, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        if let Some(world) = self.world.upgrade() {
            // Dropped outside of the lock: dropping a waker may drop a task, which locks the world.
            let _waker = world.lock().timers.wakers.remove(&key);
        }
    }
}
