//! Begins of globals, some of which are not waited for, and the answer that comes later.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{BeginReply, BeginRequest};
use handfast_rm_core::link::{LentXid, RequestId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::driver::Link;
use super::waiter::{Answered, Waiter};
use crate::error::{Error, Rejection};

/// A global that is begun, or is being begun.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The reply; before it has come, what is known of it.
    pub(crate) reply: BeginReply,
    /// The reply itself, if it was not waited for.
    pub(crate) answer: Option<Arc<BeginAnswer>>,
}

/// The answer to a begin that was not waited for.
#[derive(Debug)]
pub(crate) struct BeginAnswer {
    link: LinkId,
    state: Mutex<State>,
}

/// Tells the links of a process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId(u64);

impl LinkId {
    pub(super) fn random() -> Self {
        Self(rand::random())
    }
}

#[derive(Debug)]
enum State {
    Awaited(Vec<Waker>),
    Answered(Result<Deadline, Error>),
}

/// When the time of a global is over, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(pub(crate) Instant);

impl Deadline {
    /// The coordinator's own deadline is the one that counts. This one, a little later, saves a
    /// request that would be refused.
    pub(crate) fn of(reply: &BeginReply) -> Self {
        Self(Instant::now() + Duration::from_millis(reply.timeout_ms))
    }
}

impl BeginAnswer {
    fn new(link: LinkId) -> Self {
        Self { link, state: Mutex::new(State::Awaited(Vec::new())) }
    }

    /// Returns whether the begin went over this link, so that requests over it come behind it.
    pub(crate) fn went_over(&self, link: LinkId) -> bool {
        self.link == link
    }

    /// Waits until the coordinator has begun the global.
    ///
    /// # Errors
    /// The coordinator's refusal, or the reason why there is no answer.
    pub(crate) async fn wait(&self) -> Result<Deadline, Error> {
        poll_fn(|poller| self.poll(poller)).await
    }

    pub(crate) fn poll(&self, poller: &mut Context<'_>) -> Poll<Result<Deadline, Error>> {
        match &mut *self.lock() {
            State::Answered(answered) => Poll::Ready(answered.clone()),
            State::Awaited(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(poller.waker())) {
                    wakers.push(poller.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Returns the coordinator's refusal, if it has refused.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(&*self.lock(), State::Answered(Err(Error::Rejected(_))))
    }

    pub(super) fn set(&self, answered: Answered) {
        let answered = answered.and_then(reply_in).map(|reply| Deadline::of(&reply));
        let before = std::mem::replace(&mut *self.lock(), State::Answered(answered));
        if let State::Awaited(wakers) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the reply to a begin.
fn reply_in(answer: Answer) -> Result<BeginReply, Error> {
    if let Answer::Begin(reply) = answer {
        return Ok(reply);
    }
    if let Answer::Rejected(rejection) = answer {
        return Err(Rejection::from(rejection).into());
    }
    let got = format!("{answer:?}").chars().take(200).collect();
    Err(Error::UnexpectedAnswer { request: "begin", got })
}

impl Link {
    /// Begins a global: with a lent XID at once, otherwise when the coordinator has answered.
    /// Dropping the future gives up an answer that is waited for.
    pub(crate) fn begin(
        &self,
        request: BeginRequest,
    ) -> impl Future<Output = Result<Begun, Error>> {
        enum Submitted {
            Ahead(LentXid, Arc<BeginAnswer>),
            Waits(RequestId, oneshot::Receiver<Answered>),
        }
        let limit = self.shared.request_deadline;
        let submitted = self.shared.step(|state, now| {
            let (id, lent) = state.protocol.begin(now, request, limit)?;
            let Some(lent) = lent else {
                let (waiter, answer) = oneshot::channel();
                state.waiters.insert(id, Waiter::Caller(waiter));
                return Ok::<_, Error>(Submitted::Waits(id, answer));
            };
            let answer = Arc::new(BeginAnswer::new(self.shared.id));
            state.waiters.insert(id, Waiter::Begin(Arc::clone(&answer)));
            Ok(Submitted::Ahead(lent, answer))
        });
        let begun = submitted.map(|submitted| match submitted {
            Submitted::Ahead(LentXid { xid, timeout }, answer) => {
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let reply = BeginReply { xid, timeout_ms, ..BeginReply::default() };
                Ok(Begun { reply, answer: Some(answer) })
            }
            Submitted::Waits(id, answer) => Err(self.answer_to(id, answer)),
        });
        async move {
            let answer = match begun? {
                Ok(begun) => return Ok(begun),
                Err(answer) => answer,
            };
            Ok(Begun { reply: reply_in(answer.await?)?, answer: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn all_that_wait_are_woken_by_the_answer() {
        let answer = Arc::new(BeginAnswer::new(LinkId(1)));
        assert!(answer.wait().now_or_never().is_none());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move { answer.wait().await })
            })
            .collect();
        tokio::task::yield_now().await;
        answer.set(Ok(Answer::Begin(BeginReply::default())));
        for waiting in waiting {
            assert!(waiting.await.unwrap().is_ok());
        }
        assert!(answer.wait().now_or_never().is_some() && !answer.is_refused());
    }

    #[test]
    fn a_refusal_is_kept() {
        let answer = BeginAnswer::new(LinkId(1));
        let rejection = handfast_proto::v1::Rejection {
            code: "HF-TC-SHARE-REACHED".to_owned(),
            ..Default::default()
        };
        answer.set(Ok(Answer::Rejected(rejection)));
        let refused = answer.wait().now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code(), "HF-TC-SHARE-REACHED");
        assert!(answer.is_refused() && answer.went_over(LinkId(1)) && !answer.went_over(LinkId(2)));
    }
}
