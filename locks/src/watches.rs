//! What those who wait are watching: for backends where each hears by a watch of his own that those
//! in front of him have moved.
//!
//! A watch is kept by the client who listens; without one nobody watches, and whoever waits looks
//! by himself at his next sign of life.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use crate::backend::Wake;
use crate::error::BackendError;
use crate::name::Token;

/// Ends when looking again is worth while.
type Sign = BoxFuture<'static, ()>;
/// The same for a token, which is told; for none when nobody wants to know any more.
type Watch = BoxFuture<'static, Option<Token>>;

/// The watches of all clients of a backend.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Of each client who listens, the way to its watches.
    listeners: HashMap<u128, mpsc::UnboundedSender<Watch>>,
    /// Exactly the tokens with a watch that has not ended.
    watched: HashMap<Token, AbortHandle>,
}

impl Watches {
    /// Whether a watch of this token would be heard, and there is none.
    pub(crate) fn are_wanted(&self, token: Token) -> bool {
        let shared = self.shared();
        shared.listeners.contains_key(&token.client) && !shared.watched.contains_key(&token)
    }

    /// Watches for a sign. Another watch of the token ends.
    pub(crate) fn watch(&self, token: Token, sign: Sign) {
        let mut shared = self.shared();
        let Some(listener) = shared.listeners.get(&token.client) else { return };
        let (handle, registration) = AbortHandle::new_pair();
        let sign = Abortable::new(sign, registration);
        // A listener that has just ended wakes all its waiters when it begins again.
        let _ = listener.send(sign.map(move |ended| ended.is_ok().then_some(token)).boxed());
        if let Some(other) = shared.watched.insert(token, handle) {
            other.abort();
        }
    }

    /// Ends the watch of a token.
    pub(crate) fn forget(&self, token: Token) {
        if let Some(handle) = self.shared().watched.remove(&token) {
            handle.abort();
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

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // No step in here panics half-way.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client listens for as long as this lives.
struct Listening<'w> {
    watches: &'w Watches,
    client: u128,
}

impl Drop for Listening<'_> {
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

    /// A client that listens, and what it hears.
    async fn listening(watches: &Arc<Watches>) -> mpsc::UnboundedReceiver<Wake> {
        let (wakes, mut woken) = mpsc::unbounded_channel();
        let watches = Arc::clone(watches);
        tokio::spawn(async move { watches.listen(TOKEN.client, &wakes).await.map(drop) });
        assert_eq!(woken.recv().await, Some(Wake::All));
        woken
    }

    #[tokio::test]
    async fn whoever_watches_is_woken_once() {
        let watches = Arc::new(Watches::default());
        assert!(!watches.are_wanted(TOKEN), "nobody listens");
        let mut woken = listening(&watches).await;
        for _ in 0..2 {
            assert!(watches.are_wanted(TOKEN));
            let (sign, seen) = oneshot::channel::<()>();
            watches.watch(TOKEN, seen.map(drop).boxed());
            assert!(!watches.are_wanted(TOKEN));
            sign.send(()).unwrap();
            assert_eq!(woken.recv().await, Some(Wake::One(TOKEN)));
        }
    }

    #[tokio::test]
    async fn whoever_forgets_is_not_woken() {
        let watches = Arc::new(Watches::default());
        let mut woken = listening(&watches).await;
        let (first, seen) = oneshot::channel::<()>();
        watches.watch(TOKEN, seen.map(drop).boxed());
        watches.forget(TOKEN);
        let other = Token { number: 2, ..TOKEN };
        let (second, seen) = oneshot::channel::<()>();
        watches.watch(other, seen.map(drop).boxed());
        // Its end of the first watch is gone, or goes; a sign of it would come first.
        let _ = first.send(());
        second.send(()).unwrap();
        assert_eq!(woken.recv().await, Some(Wake::One(other)));
        assert!(watches.are_wanted(TOKEN));
    }
}
