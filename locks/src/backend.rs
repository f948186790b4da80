//! What a backend must do for the client: four idempotent requests.
//!
//! A backend keeps no state of the client's and decides nothing about waiting, renewing or losing:
//! that is the client's state machine. It never sees a clock of the client's; it is told durations
//! and goes by its own clock.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::error::BackendError;
use crate::name::{Fence, Holder, LockName, Token};

/// How long a waiter keeps its place in the queue without a sign of life. A waiter that died costs
/// the others this much.
pub const WAITER_ALIVE: Duration = Duration::from_secs(6);
/// How often a waiter asks again, which is also its sign of life.
pub const WAITER_BEAT: Duration = Duration::from_secs(2);

/// What a backend's locks are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Two holders at once are rare and cost work done twice. A fail-over of the backend may lose
    /// the lock and, with it, the order of fencing tokens.
    Efficiency,
    /// Together with the fence at the resource two holders never both take effect: fencing tokens
    /// never go back as long as the backend keeps what it has committed.
    Correctness,
}

/// How much of a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it: nobody else holds any of it. What a writer takes, and every plain lock.
    All,
    /// One of so many equal parts: a permit of a semaphore. Nobody holds all meanwhile.
    One {
        /// How many there are. All who hold a part agree on it.
        of: u32,
    },
}

impl Share {
    /// What a reader takes: there are enough for everybody.
    pub const READ: Self = Self::One { of: u32::MAX };
}

/// A request for a lock. The same token always gets the same answer: a request sent twice finds its
/// own lock.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which lock.
    pub name: LockName,
    /// Which acquisition.
    pub token: Token,
    /// How much of it. Asking for a part with the token of somebody who holds all gives the rest
    /// back; asking for all with the token of somebody who holds a part changes nothing.
    pub share: Share,
    /// How long it is held without renewal, from when the backend grants it.
    pub lease: Duration,
    /// What the client calls itself.
    pub label: Arc<str>,
    /// Whether to be put in the queue while somebody else holds it.
    pub place: Place,
}

/// What happens to a request for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It leaves nothing behind.
    None,
    /// It joins the queue.
    Join,
    /// It is in the queue, and says that its waiter lives.
    Keep,
}

/// The answer to a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Held from here on.
    Granted {
        /// Larger than every earlier holder's; those who hold parts at the same time have the same.
        fence: Fence,
        /// When the backend had certainly not granted it yet, where that is not the time at which
        /// this request was handed out: the lease counts from then.
        since: Option<Moment>,
    },
    /// Not yet.
    Busy {
        /// Who holds it; none when it is free and somebody else is to have it first.
        holder: Option<Holder>,
        /// When to ask again if no wake-up comes.
        look_again: Duration,
    },
}

impl Answer {
    /// Granted by the very request that is answered.
    #[must_use]
    pub const fn granted(fence: Fence) -> Self {
        Self::Granted { fence, since: None }
    }
}

/// A lock that the client believes to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which lock.
    pub name: LockName,
    /// Which acquisition.
    pub token: Token,
}

/// A request to end an acquisition, in whatever state it is: held, queued, or never heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// Which one.
    pub hold: Hold,
    /// Whether a request of this token went unanswered and may still arrive, after this one: the
    /// backend must then refuse the token.
    pub is_doubtful: bool,
    /// Whether it was got as a whole and without waiting, so that probably nobody waits behind it:
    /// a hint which way is the shorter one. It may be wrong, and a backend may ignore it.
    pub is_alone: bool,
}

/// The answer to a request to end an acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was held, and is free now or goes to the next one who waits.
    Freed,
    /// It was not held by this token, and who holds it was not touched.
    NotHeld {
        /// Who holds it.
        current: Option<Holder>,
    },
}

/// A sign that asking again is worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// To one who waits.
    One(Token),
    /// To all: signs may have been missed.
    All,
}

/// Where locks are kept.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What it is called in messages.
    fn name(&self) -> &'static str;

    /// What its locks are good for.
    fn grade(&self) -> Grade;

    /// How long a request to ask or to leave takes at most, where the backend sees to that itself:
    /// it fails then. The client keeps time for each request otherwise, and always where it would
    /// wait for less.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Asks for a lock, once. Fair: a lock that is free goes to whoever waits longest, whatever
    /// share those ask for who come later, so that readers never keep a writer waiting for ever.
    ///
    /// # Errors
    /// When it is unknown whether the lock was granted; a lasting one where no shares are to be had
    /// or others hold parts of another size.
    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError>;

    /// Renews leases, all in one go, and answers for each whether it is still held. A renewal never
    /// takes a lock again that was lost.
    ///
    /// # Errors
    /// When it is unknown which were renewed.
    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError>;

    /// Ends an acquisition: frees the lock, leaves the queue, wakes the next.
    ///
    /// # Errors
    /// When it is unknown whether it was ended.
    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError>;

    /// Hears of wake-ups for a client's waiters, until the connection fails. Without wake-ups it
    /// never ends.
    ///
    /// # Errors
    /// When the connection failed; signs may be missed until it is called again.
    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError>;
}

/// A backend that is chosen while the program runs is an `Arc<dyn Backend>`.
#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn grade(&self) -> Grade {
        (**self).grade()
    }

    fn answers_within(&self) -> Option<Duration> {
        (**self).answers_within()
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        (**self).ask(ask).await
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        (**self).renew(holds, lease).await
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        (**self).leave(leave).await
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        (**self).listen(client, wakes).await
    }
}
