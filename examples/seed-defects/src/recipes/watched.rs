//! What passes between a client of ours and its backend: counted, and where a step has to fall
//! between two messages, done there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{
    Answer, Ask, Backend, BackendError, Grade, Hold, Leave, Left, LockName, Place, Share, Wake,
};
use tokio::sync::{Mutex, mpsc, watch};

/// What has passed so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Passed {
    pub(crate) asks: u32,
    /// Renewals that the backend has confirmed.
    pub(crate) renewals: u32,
    /// Renewals that failed.
    pub(crate) failures: u32,
}

/// What is done to the next request for a lock.
#[derive(Debug)]
pub(crate) enum Between {
    /// Its answer is held back until this has been let go.
    LeaveFirst(Hold),
    /// Its answer is lost.
    LoseAnswer,
}

/// A backend that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) backend: Arc<dyn Backend>,
    passed: watch::Sender<Passed>,
    between: Mutex<Option<Between>>,
}

impl Watched {
    pub(crate) fn over(backend: Arc<dyn Backend>) -> Self {
        let (passed, between) = (watch::Sender::default(), Mutex::default());
        Self { backend, passed, between }
    }

    /// Prepares what happens to the next request.
    pub(crate) async fn next(&self, between: Between) {
        *self.between.lock().await = Some(between);
    }

    pub(crate) fn passed(&self) -> Passed {
        *self.passed.borrow()
    }

    /// Waits for something to have passed.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Passed) -> bool) {
        // The sender lives in `self`.
        let _ = self.passed.subscribe().wait_for(is_so).await;
    }

    /// Lets go of somebody's lock behind his back, as an operator would.
    pub(crate) async fn give_away(&self, hold: Hold) -> Result<Left, BackendError> {
        self.backend.leave(&Leave { hold, is_doubtful: false, is_alone: false }).await
    }

    /// Takes a lock without a client that renews it.
    pub(crate) async fn take(&self, hold: &Hold, lease: Duration) -> Result<Answer, BackendError> {
        self.backend.ask(&ask(hold, lease)).await
    }
}

/// An acquisition by a holder without a client.
pub(crate) fn hold(name: &LockName, client: u128) -> Hold {
    let token = handfast_locks::Token { client, number: 1 };
    Hold { name: name.clone(), token }
}

fn ask(hold: &Hold, lease: Duration) -> Ask {
    let (name, token) = (hold.name.clone(), hold.token);
    let label = "somebody else".into();
    Ask { name, token, share: Share::All, lease, label, place: Place::None }
}

#[async_trait]
impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn grade(&self) -> Grade {
        self.backend.grade()
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        self.passed.send_modify(|passed| passed.asks += 1);
        let answer = self.backend.ask(ask).await;
        match self.between.lock().await.take() {
            Some(Between::LeaveFirst(hold)) => {
                self.give_away(hold).await?;
                answer
            }
            Some(Between::LoseAnswer) => Err(BackendError::unanswered()),
            None => answer,
        }
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let renewed = self.backend.renew(holds, lease).await;
        self.passed.send_modify(|passed| match &renewed {
            Ok(_) => passed.renewals += 1,
            Err(_) => passed.failures += 1,
        });
        renewed
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        self.backend.leave(leave).await
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        self.backend.listen(client, wakes).await
    }
}
