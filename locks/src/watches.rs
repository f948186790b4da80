//! What those who wait are watching: for backends where each hears by a watch of his own that those
//! in front of him have moved.
//!
//! A watch is kept by the client who listens; without one nobody watches, and whoever waits looks
//! by himself at his next sign of life. While his watch stands there is nothing to look for: what
//! he saw when it was set is kept with it, and so a crowd costs the servers little.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use crate::backend::Wake;
use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::Token;

/// How long a watch is relied on. Then whoever waits looks again and sets another one.
const RELIED_ON: Duration = Duration::from_secs(30);

/// Ends when looking again is worth while.
type Sign = BoxFuture<'static, ()>;
/// The same for a token, which is told; for none when nobody wants to know any more.
type Watch = BoxFuture<'static, Option<Token>>;

/// The watches of all clients of a backend, each with what its owner saw when it was set.
#[derive(Debug)]
pub(crate) struct Watches<S> {
    shared: Mutex<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    /// Of each client who listens, the way to its watches.
    listeners: HashMap<u128, mpsc::UnboundedSender<Watch>>,
    /// Exactly the tokens with a watch that has not ended.
    watched: HashMap<Token, Watched<S>>,
}

#[derive(Debug)]
struct Watched<S> {
    watch: AbortHandle,
    set_at: Moment,
    seen: S,
}

impl<S> Default for Watches<S> {
    fn default() -> Self {
        let shared = Shared { listeners: HashMap::new(), watched: HashMap::new() };
        Self { shared: Mutex::new(shared) }
    }
}

impl<S: Clone> Watches<S> {
    /// Whether a watch of this token would be heard, and there is none to rely on.
    pub(crate) fn are_wanted(&self, now: Moment, token: Token) -> bool {
        let shared = self.shared();
        shared.listeners.contains_key(&token.client) && shared.relied_on(now, token).is_none()
    }

    /// What was seen when the watch of this token was set, if it stands: nothing that matters has
    /// changed since.
    pub(crate) fn seen(&self, now: Moment, token: Token) -> Option<S> {
        self.shared().relied_on(now, token).cloned()
    }

    /// Watches for a sign, after something was seen. Another watch of the token ends.
    pub(crate) fn watch(&self, now: Moment, token: Token, seen: S, sign: Sign) {
        let mut shared = self.shared();
        let Some(listener) = shared.listeners.get(&token.client) else { return };
        let (watch, registration) = AbortHandle::new_pair();
        let sign = Abortable::new(sign, registration);
        // A listener that has just ended wakes all its waiters when it begins again.
        let _ = listener.send(sign.map(move |ended| ended.is_ok().then_some(token)).boxed());
        if let Some(other) = shared.watched.insert(token, Watched { watch, set_at: now, seen }) {
            other.watch.abort();
        }
    }

    /// Ends the watch of a token.
    pub(crate) fn forget(&self, token: Token) {
        if let Some(watched) = self.shared().watched.remove(&token) {
            watched.watch.abort();
        }
    }

    /// Keeps the watches of a client and passes their signs on, for as long as it is polled.
    pub(crate) async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let (listener, mut watches) = mpsc::unbounded_channel();
        self.shared().listeners.insert(client, listener);
        let _listening = Listening { watches: self, client };
        // The receiver ends with the one who called this, here and below. Whoever came before has
        // no watch yet.
        let _ = wakes.send(Wake::All);
        let mut watched: FuturesUnordered<Watch> = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(watch) = watches.recv() => watched.push(watch),
                Some(ended) = watched.next(), if !watched.is_empty() => {
                    let Some(token) = ended else { continue };
                    self.shared().watched.remove(&token);
                    let _ = wakes.send(Wake::One(token));
                }
                // The client listens anew, and somebody else keeps its watches.
                else => std::future::pending().await,
            }
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared<S>> {
        // No step in here panics half-way.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Shared<S> {
    fn relied_on(&self, now: Moment, token: Token) -> Option<&S> {
        let watched = self.watched.get(&token)?;
        (now < watched.set_at + RELIED_ON).then_some(&watched.seen)
    }
}

/// A client listens for as long as this lives.
struct Listening<'w, S: Clone> {
    watches: &'w Watches<S>,
    client: u128,
}

impl<S: Clone> Drop for Listening<'_, S> {
    fn drop(&mut self) {
        let mut shared = self.watches.shared();
        shared.listeners.remove(&self.client);
        shared.watched.retain(|token, _| token.client != self.client);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    const TOKEN: Token = Token { client: 7, number: 1 };
    const NOW: Moment = Moment::at(Duration::from_secs(100));

    /// A client that listens, and what it hears.
    async fn listening(watches: &Arc<Watches<u32>>) -> mpsc::UnboundedReceiver<Wake> {
        let (wakes, mut woken) = mpsc::unbounded_channel();
        let watches = Arc::clone(watches);
        tokio::spawn(async move { watches.listen(TOKEN.client, &wakes).await.map(drop) });
        assert_eq!(woken.recv().await, Some(Wake::All));
        woken
    }

    #[tokio::test]
    async fn whoever_watches_is_woken_once() {
        let watches = Arc::new(Watches::default());
        assert!(!watches.are_wanted(NOW, TOKEN), "nobody listens");
        let mut woken = listening(&watches).await;
        for _ in 0..2 {
            assert!(watches.are_wanted(NOW, TOKEN));
            let (sign, signed) = oneshot::channel::<()>();
            watches.watch(NOW, TOKEN, 1, signed.map(drop).boxed());
            assert!(!watches.are_wanted(NOW, TOKEN));
            sign.send(()).unwrap();
            assert_eq!(woken.recv().await, Some(Wake::One(TOKEN)));
        }
    }

    #[tokio::test]
    async fn whoever_forgets_is_not_woken() {
        let watches = Arc::new(Watches::default());
        let mut woken = listening(&watches).await;
        let (first, signed) = oneshot::channel::<()>();
        watches.watch(NOW, TOKEN, 1, signed.map(drop).boxed());
        watches.forget(TOKEN);
        let other = Token { number: 2, ..TOKEN };
        let (second, signed) = oneshot::channel::<()>();
        watches.watch(NOW, other, 1, signed.map(drop).boxed());
        // Its end of the first watch is gone, or goes; a sign of it would come first.
        let _ = first.send(());
        second.send(()).unwrap();
        assert_eq!(woken.recv().await, Some(Wake::One(other)));
        assert!(watches.are_wanted(NOW, TOKEN));
    }

    #[tokio::test]
    async fn what_was_seen_is_relied_on_for_a_while() {
        let watches = Arc::new(Watches::default());
        let mut woken = listening(&watches).await;
        let set = |now, seen| {
            let (sign, signed) = oneshot::channel::<()>();
            watches.watch(now, TOKEN, seen, signed.map(drop).boxed());
            sign
        };
        assert_eq!(watches.seen(NOW, TOKEN), None);
        let first = set(NOW, 1);
        let later = NOW + RELIED_ON;
        let just_before = Moment::at(later.since_start() - Duration::from_millis(1));
        assert_eq!(watches.seen(just_before, TOKEN), Some(1));
        assert!(!watches.are_wanted(just_before, TOKEN));
        assert_eq!(watches.seen(later, TOKEN), None);
        assert!(watches.are_wanted(later, TOKEN), "another watch is set in its place");
        let second = set(later, 2);
        assert_eq!(watches.seen(later, TOKEN), Some(2));
        let _ = first.send(());
        second.send(()).unwrap();
        assert_eq!(woken.recv().await, Some(Wake::One(TOKEN)));
        assert_eq!(watches.seen(later, TOKEN), None, "what changed is looked at");
    }
}
