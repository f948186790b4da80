//! The watches of waiters, for backends where each waiter learns by a watch of its own that the
//! queue ahead of it has moved.
//!
//! The client that listens keeps the watches. Without a listener there is no watch, and a waiter
//! reads the queue at each heartbeat. While its watch stands, a waiter need not read the queue:
//! what it saw when the watch was set is kept with the watch, so a large crowd costs the servers
//! little.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use crate::backend::WakeUp;
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::AcquisitionId;

/// How long a watch is trusted. Then its waiter reads the queue again and sets another one.
const TRUSTED_FOR: Duration = Duration::from_secs(30);

/// Ends when reading the queue again is worth while.
type Signal = BoxFuture<'static, ()>;
/// The same for an id, which it returns. It returns none if the watch was replaced or removed.
type Watch = BoxFuture<'static, Option<AcquisitionId>>;

/// The watches of all clients of a backend, each with what its waiter saw when it was set.
#[derive(Debug)]
pub(crate) struct Watches<S> {
    table: Mutex<WatchTable<S>>,
}

#[derive(Debug)]
struct WatchTable<S> {
    /// For each client that listens, the channel to its watches.
    listeners: HashMap<u128, mpsc::UnboundedSender<Watch>>,
    /// Exactly the ids with a watch that has not ended.
    watched: HashMap<AcquisitionId, WatchEntry<S>>,
}

#[derive(Debug)]
struct WatchEntry<S> {
    watch: AbortHandle,
    set_at: Moment,
    seen: S,
}

impl<S> Default for Watches<S> {
    fn default() -> Self {
        let table = WatchTable { listeners: HashMap::new(), watched: HashMap::new() };
        Self { table: Mutex::new(table) }
    }
}

impl<S: Clone> Watches<S> {
    /// Returns whether a watch of this id would be heard, and there is none to trust.
    pub(crate) fn needs_watch(&self, now: Moment, id: AcquisitionId) -> bool {
        let table = self.table();
        table.listeners.contains_key(&id.client) && table.trusted(now, id).is_none()
    }

    /// Returns what was seen when the watch of this id was set, if the watch stands: nothing that
    /// matters has changed since.
    pub(crate) fn observation(&self, now: Moment, id: AcquisitionId) -> Option<S> {
        self.table().trusted(now, id).cloned()
    }

    /// Sets a watch for a signal, with what was seen before. Replaces another watch of the id.
    pub(crate) fn set(&self, now: Moment, id: AcquisitionId, seen: S, signal: Signal) {
        let mut table = self.table();
        // The table stays locked until the watch is in it: the listener may find the signal ended
        // at once, and removes the entry then.
        let Some(listener) = table.listeners.get(&id.client) else { return };
        let (watch, registration) = AbortHandle::new_pair();
        let signal = Abortable::new(signal, registration);
        // A listener that has just ended wakes all its waiters when it starts again.
        let _ = listener.send(signal.map(move |ended| ended.is_ok().then_some(id)).boxed());
        if let Some(other) = table.watched.insert(id, WatchEntry { watch, set_at: now, seen }) {
            other.watch.abort();
        }
    }

    /// Removes the watch of an id.
    pub(crate) fn forget(&self, id: AcquisitionId) {
        if let Some(watched) = self.table().watched.remove(&id) {
            watched.watch.abort();
        }
    }

    /// Keeps the watches of a client and forwards their signals, for as long as it is polled.
    pub(crate) async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        let (listener, mut watches) = mpsc::unbounded_channel();
        self.table().listeners.insert(client, listener);
        let _listening = Listening { watches: self, client };
        // The receiver ends with the caller of this function, here and below. Waiters from before
        // this call have no watch yet.
        let _ = wake_ups.send(WakeUp::All);
        let mut watched: FuturesUnordered<Watch> = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(watch) = watches.recv() => watched.push(watch),
                Some(ended) = watched.next(), if !watched.is_empty() => {
                    let Some(id) = ended else { continue };
                    // The entry goes before the wake-up: the waiter's request must not trust what
                    // it saw with this watch.
                    self.table().watched.remove(&id);
                    let _ = wake_ups.send(WakeUp::One(id));
                }
                // The client has called this again, and that call keeps its watches.
                else => std::future::pending().await,
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, WatchTable<S>> {
        // No change to the table panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> WatchTable<S> {
    fn trusted(&self, now: Moment, id: AcquisitionId) -> Option<&S> {
        let watched = self.watched.get(&id)?;
        (now < watched.set_at + TRUSTED_FOR).then_some(&watched.seen)
    }
}

/// Registers a client as listening, for as long as this lives.
struct Listening<'w, S: Clone> {
    watches: &'w Watches<S>,
    client: u128,
}

impl<S: Clone> Drop for Listening<'_, S> {
    fn drop(&mut self) {
        let mut table = self.watches.table();
        table.listeners.remove(&self.client);
        // These watches are dropped with their listener. What was seen with them is not to be
        // trusted any more, since no change would be heard.
        table.watched.retain(|id, _| id.client != self.client);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    const TOKEN: AcquisitionId = AcquisitionId { client: 7, number: 1 };
    const NOW: Moment = Moment::at(Duration::from_secs(100));

    /// Starts a client that listens, and returns its wake-ups.
    async fn listening(watches: &Arc<Watches<u32>>) -> mpsc::UnboundedReceiver<WakeUp> {
        let (wake_ups, mut woken) = mpsc::unbounded_channel();
        let watches = Arc::clone(watches);
        tokio::spawn(async move { watches.listen(TOKEN.client, &wake_ups).await.map(drop) });
        assert_eq!(woken.recv().await, Some(WakeUp::All));
        woken
    }

    #[tokio::test]
    async fn watcher_is_woken_once() {
        let watches = Arc::new(Watches::default());
        assert!(!watches.needs_watch(NOW, TOKEN), "no client listens");
        let mut woken = listening(&watches).await;
        for _ in 0..2 {
            assert!(watches.needs_watch(NOW, TOKEN));
            let (signal, signed) = oneshot::channel::<()>();
            watches.set(NOW, TOKEN, 1, signed.map(drop).boxed());
            assert!(!watches.needs_watch(NOW, TOKEN));
            signal.send(()).unwrap();
            assert_eq!(woken.recv().await, Some(WakeUp::One(TOKEN)));
        }
    }

    #[tokio::test]
    async fn removed_watch_does_not_wake() {
        let watches = Arc::new(Watches::default());
        let mut woken = listening(&watches).await;
        let (first, signed) = oneshot::channel::<()>();
        watches.set(NOW, TOKEN, 1, signed.map(drop).boxed());
        watches.forget(TOKEN);
        let other = AcquisitionId { number: 2, ..TOKEN };
        let (second, signed) = oneshot::channel::<()>();
        watches.set(NOW, other, 1, signed.map(drop).boxed());
        // The first watch has ended or is about to end. A signal of it would come first.
        let _ = first.send(());
        second.send(()).unwrap();
        assert_eq!(woken.recv().await, Some(WakeUp::One(other)));
        assert!(watches.needs_watch(NOW, TOKEN));
    }

    #[tokio::test]
    async fn observation_is_trusted_for_30_seconds() {
        let watches = Arc::new(Watches::default());
        let mut woken = listening(&watches).await;
        let set = |now, seen| {
            let (signal, signed) = oneshot::channel::<()>();
            watches.set(now, TOKEN, seen, signed.map(drop).boxed());
            signal
        };
        assert_eq!(watches.observation(NOW, TOKEN), None);
        let first = set(NOW, 1);
        let later = NOW + TRUSTED_FOR;
        let just_before = Moment::at(later.since_start() - Duration::from_millis(1));
        assert_eq!(watches.observation(just_before, TOKEN), Some(1));
        assert!(!watches.needs_watch(just_before, TOKEN));
        assert_eq!(watches.observation(later, TOKEN), None);
        assert!(watches.needs_watch(later, TOKEN), "another watch is set in its place");
        let second = set(later, 2);
        assert_eq!(watches.observation(later, TOKEN), Some(2));
        let _ = first.send(());
        second.send(()).unwrap();
        assert_eq!(woken.recv().await, Some(WakeUp::One(TOKEN)));
        assert_eq!(watches.observation(later, TOKEN), None, "a change is read again");
    }
}
