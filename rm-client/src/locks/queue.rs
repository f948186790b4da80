//! The requests of this process that wait in the coordinator, each until it is answered and its
//! answer is fetched.
//!
//! Whoever waits says so from time to time; whose waiter is heard of no more is given up, whether
//! he was granted the lock meanwhile or not.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_proto::v1;
use hashbrown::HashMap;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use handfast_locks::{Hold, Holder, Leave, Moment, Token, WAITER_ALIVE, Wake};

use super::{ANSWERED_WITHIN, Shared};
use crate::error::Error;

/// Every request under way, and every answer that is not fetched.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<HashMap<Token, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    answered: Option<Answered>,
    alive_until: Instant,
    /// It was abandoned and is being given up at the coordinator. Whoever comes back asks again
    /// after that: a request of his now could be overtaken by the end of the one before.
    is_leaving: bool,
    /// Who was seen holding the lock.
    holder: Option<Holder>,
    task: AbortHandle,
}

/// How long somebody is known to wait.
enum Life {
    Until(Instant),
    Over,
    /// Not here any more.
    Elsewhere,
}

/// An answer, and when its request was sent.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) reply: Result<v1::AcquireLockReply, Error>,
    pub(super) sent_at: Moment,
}

/// A request on its way to its answer.
pub(super) type Asking = BoxFuture<'static, Answered>;

impl Shared {
    /// A request that counts from now on, and is sent when it is first polled.
    pub(super) fn asking(&self, request: v1::AcquireLockRequest) -> Asking {
        let (coordinator, sent_at) = (self.coordinator.clone(), Moment::now());
        async move {
            let reply = coordinator.acquire_lock(request, ANSWERED_WITHIN).await;
            Answered { reply, sent_at }
        }
        .boxed()
    }

    /// Lets a request that is not answered at once wait here.
    pub(super) fn join(self: &Arc<Self>, hold: Hold, asking: Asking) {
        let mut waiting = self.queue.lock();
        let (token, alive_until) = (hold.token, Instant::now() + WAITER_ALIVE);
        let task = tokio::spawn(Arc::clone(self).wait(hold, asking)).abort_handle();
        let (answered, is_leaving, holder) = (None, false, None);
        waiting.insert(token, Waiting { answered, alive_until, is_leaving, holder, task });
    }

    async fn wait(self: Arc<Self>, hold: Hold, asking: Asking) {
        let token = hold.token;
        tokio::select! {
            answered = asking => {
                self.queue.answer(token, answered);
                self.wake(Wake::One(token), token.client);
                self.queue.abandoned(token).await;
            }
            () = self.queue.abandoned(token) => {}
        }
        // Not in doubt, which would bar the token: its owner may come back.
        if let Err(error) = self.release(&Leave { hold, is_doubtful: false, is_alone: false }).await
        {
            tracing::warn!(%token, %error, "a place in the queue of a lock could not be given up");
        }
        self.queue.lock().remove(&token);
    }
}

impl Queue {
    /// A sign of life of whoever waits. Whether somebody does.
    pub(super) fn hear_of(&self, token: Token) -> bool {
        let mut waiting = self.lock();
        let Some(known) = waiting.get_mut(&token) else { return false };
        known.alive_until = Instant::now() + WAITER_ALIVE;
        true
    }

    fn answer(&self, token: Token, answered: Answered) {
        if let Some(known) = self.lock().get_mut(&token) {
            known.answered = Some(answered);
        }
    }

    /// Fetches an answer; nothing waits any more then.
    pub(super) fn take(&self, token: Token) -> Option<Answered> {
        let mut waiting = self.lock();
        let known = waiting.get_mut(&token).filter(|known| !known.is_leaving)?;
        let answered = known.answered.take()?;
        waiting.remove(&token)?.task.abort();
        Some(answered)
    }

    /// Nobody waits any more. Whether somebody did.
    pub(super) fn leave(&self, token: Token) -> bool {
        let left = self.lock().remove(&token);
        left.as_ref().inspect(|waiting| waiting.task.abort()).is_some()
    }

    /// Remembers who holds the lock.
    pub(super) fn see(&self, token: Token, holder: Option<Holder>) {
        if let Some(waiting) = self.lock().get_mut(&token) {
            waiting.holder = holder;
        }
    }

    /// Who was seen holding the lock.
    pub(super) fn seen(&self, token: Token) -> Option<Holder> {
        self.lock().get(&token)?.holder.clone()
    }

    /// Ends when nobody has given a sign of life for too long. If it was fetched or given up
    /// instead, whoever did so ends the task that waits here, and until then nothing more is to be
    /// sent: it could let go of a lock that is held.
    async fn abandoned(&self, token: Token) {
        loop {
            match self.life_of(token) {
                Life::Until(at) => sleep_until(at).await,
                Life::Over => return,
                Life::Elsewhere => return pending().await,
            }
        }
    }

    fn life_of(&self, token: Token) -> Life {
        let mut waiting = self.lock();
        let Some(known) = waiting.get_mut(&token) else { return Life::Elsewhere };
        if known.alive_until > Instant::now() {
            return Life::Until(known.alive_until);
        }
        known.is_leaving = true;
        Life::Over
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Waiting>> {
        // No step under it panics half-way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
