//! Executes what the state machine decides: one task for all locks of a client, and one that
//! listens for wake-ups.
//!
//! It holds no lock state of its own, only the ends of channels to waiting callers and to guards.
//! It goes on after the last guard is dropped, until everything is released.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, unconstrained};

use crate::backend::{AcquireRequest, Backend, LockMode, LockRef, ReleaseRequest, WakeUp};
use crate::clock::{DeadlineTimer, Moment};
use crate::error::{BackendError, LockError, LossReason, ReleaseOutcome};
use crate::guard::{HeldLock, SharedLease};
use crate::machine::{Effect, Event, Expiry, Machine, Settings, WaitPolicy};
use crate::metrics::ClientMetrics;
use crate::name::{AcquisitionId, FencingToken, LockName};

/// How long one request may take, unless the lease is too short for that.
const CALL_MAX: Duration = Duration::from_secs(5);
/// How many messages, and how many answers, are taken before deadlines and wake-ups have a turn.
const DRAIN_MAX: usize = 64;
/// The pause before listening again after the connection failed.
const LISTEN_RETRY: Duration = Duration::from_millis(500);

type Reply = oneshot::Sender<Result<Arc<HeldLock>, LockError>>;
type Ended = oneshot::Sender<Result<ReleaseOutcome, BackendError>>;
type DowngradeReply = oneshot::Sender<Result<(), LockError>>;

/// A message of a client or a guard to the driver.
#[derive(Debug)]
pub(crate) enum Message {
    /// Acquire a lock.
    Acquire { number: u64, name: LockName, mode: LockMode, wait: WaitPolicy, reply: Reply },
    /// Turn a writer into a reader.
    Downgrade { number: u64, done: DowngradeReply },
    /// Release the lock, or stop waiting for it.
    Release { number: u64, ended: Option<Ended> },
    /// Report when nothing is left of what was released.
    Settle(oneshot::Sender<()>),
}

/// The channels through which the results of an acquisition are reported.
#[derive(Debug)]
struct Acquisition {
    name: LockName,
    requested_at: Moment,
    /// None once the lock is released or lost.
    held_since: Option<Moment>,
    reply: Option<Reply>,
    lease: Option<Arc<SharedLease>>,
    downgraded: Option<DowngradeReply>,
    ended: Option<Ended>,
}

impl Acquisition {
    fn new(name: LockName, requested_at: Moment, reply: Reply) -> Self {
        Self {
            name,
            requested_at,
            held_since: None,
            reply: Some(reply),
            lease: None,
            downgraded: None,
            ended: None,
        }
    }

    fn stop_holding(&mut self, now: Moment, metrics: &ClientMetrics) {
        if let Some(since) = self.held_since.take() {
            metrics.held(now.remaining(since));
        }
    }
}

/// The reason why the driver woke.
enum Trigger {
    /// `None` when no sender is left.
    Message(Option<Message>),
    Answered(Event),
    Event(Event),
}

pub(crate) struct Driver {
    machine: Machine,
    /// When the driver was last woken: the clock is read once for everything that has come
    /// together.
    now: Moment,
    settings: Settings,
    backend: Arc<dyn Backend>,
    /// How long the backend takes for an answer at most, if it times requests out itself.
    request_timeout: Option<Duration>,
    metrics: ClientMetrics,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// For the guards. It is weak, so that the inbox closes when the last client and guard are
    /// gone.
    sender: mpsc::WeakUnboundedSender<Message>,
    acquisitions: HashMap<u64, Acquisition>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    settling: Vec<oneshot::Sender<()>>,
    /// Empty between events. It is kept for its capacity.
    effects: Vec<Effect>,
}

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        backend: Arc<dyn Backend>,
    ) -> (Self, mpsc::UnboundedSender<Message>) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let driver = Self {
            machine: Machine::new(settings.clone()),
            now: Moment::now(),
            settings,
            request_timeout: backend.request_timeout(),
            metrics: ClientMetrics::of(&backend),
            backend,
            inbox,
            sender: sender.downgrade(),
            acquisitions: HashMap::new(),
            calls: FuturesUnordered::new(),
            settling: Vec::new(),
            effects: Vec::new(),
        };
        (driver, sender)
    }

    /// Runs until the last client and guard are gone and everything is released.
    pub(crate) async fn serve(mut self) {
        let (wake_ups, mut woken) = mpsc::unbounded_channel();
        let (backend, metrics) = (Arc::clone(&self.backend), self.metrics.clone());
        // Listening is a task of its own, which ends with this one: here it would be polled
        // whenever anything else happens.
        let mut listening = JoinSet::new();
        listening.spawn(listen(backend, metrics, self.settings.client, wake_ups));
        let (mut is_open, mut alarm) = (true, DeadlineTimer::default());
        while is_open || !self.machine.is_idle() {
            alarm.set(self.machine.next_deadline());
            let trigger = tokio::select! {
                message = self.inbox.recv(), if is_open => Trigger::Message(message),
                Some(event) = self.calls.next(), if !self.calls.is_empty() => {
                    Trigger::Answered(event)
                }
                Some(wake) = woken.recv() => Trigger::Event(Event::WokenUp(wake)),
                // The machine compares the time itself, so an early tick does nothing.
                () = alarm.wait() => Trigger::Event(Event::Tick),
            };
            self.now = Moment::now();
            match trigger {
                Trigger::Message(Some(message)) => self.accept(message),
                Trigger::Message(None) => is_open = false,
                Trigger::Answered(event) => self.complete_call(event),
                Trigger::Event(event) => self.decide(event),
            }
            self.drain_ready();
            self.settle();
        }
    }

    /// Takes what has come together with what woke the driver. Waiting for each by itself would
    /// cost more than serving it.
    fn drain_ready(&mut self) {
        for _ in 0..DRAIN_MAX {
            let Ok(message) = self.inbox.try_recv() else { break };
            self.accept(message);
        }
        for _ in 0..DRAIN_MAX {
            // A call that is not ready is waited for with everything else.
            let Some(Some(event)) = self.calls.next().now_or_never() else { break };
            self.complete_call(event);
        }
    }

    fn complete_call(&mut self, event: Event) {
        self.metrics.observe(&event);
        self.decide(event);
    }

    fn accept(&mut self, message: Message) {
        match message {
            Message::Acquire { number, name, mode, wait, reply } => {
                self.acquisitions.insert(number, Acquisition::new(name.clone(), self.now, reply));
                self.decide(Event::Acquire { number, name, mode, wait });
            }
            Message::Downgrade { number, done } => {
                if let Some(acquisition) = self.acquisitions.get_mut(&number) {
                    acquisition.downgraded = Some(done);
                }
                self.decide(Event::Downgrade { number });
            }
            Message::Release { number, ended } => {
                if let Some(acquisition) = self.acquisitions.get_mut(&number) {
                    // A released guard sends a second message when it is dropped, without a
                    // channel.
                    acquisition.ended = acquisition.ended.take().or(ended);
                    acquisition.stop_holding(self.now, &self.metrics);
                }
                self.decide(Event::Release { number });
            }
            Message::Settle(settled) => self.settling.push(settled),
        }
    }

    fn settle(&mut self) {
        if !self.settling.is_empty() && self.machine.is_settled() {
            for settled in self.settling.drain(..) {
                // A caller that has gone needs no answer.
                let _ = settled.send(());
            }
        }
    }

    fn decide(&mut self, event: Event) {
        // An effect may lead to an event, which starts with an empty list.
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.decide(self.now, event, &mut effects);
        for effect in effects.drain(..) {
            self.execute(effect);
        }
        self.effects = effects;
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Acquire(request) => self.acquire(request),
            Effect::Renew { numbers, lock_refs } => self.renew(numbers, lock_refs),
            Effect::Release(request) => self.release(request),
            Effect::Granted { number, fencing_token, expiry } => {
                self.grant(number, fencing_token, expiry)
            }
            Effect::Refused { number, reason } => {
                // The machine may still have to release what the request has left at the backend.
                // No caller waits for that, so the entry goes.
                self.metrics.refused(&reason);
                if let Some(reply) =
                    self.acquisitions.remove(&number).and_then(|acquisition| acquisition.reply)
                {
                    // A caller that has gone needs no answer.
                    let _ = reply.send(Err(reason));
                }
            }
            Effect::Extended { number, expiry } => self.extend(number, expiry),
            Effect::Downgraded { number } => self.answer_downgrade(number, Ok(())),
            Effect::DowngradeRefused { number, reason } => {
                self.answer_downgrade(number, Err(reason));
            }
            Effect::Lost { number, reason } => self.lose(number, reason),
            Effect::Ended { number, outcome } => self.end(number, outcome),
        }
    }

    /// Makes a guard for the caller. If the caller has gone, the guard is dropped on the way, which
    /// releases the lock.
    fn grant(&mut self, number: u64, fencing_token: FencingToken, expiry: Expiry) {
        let Some(acquisition) = self.acquisitions.get_mut(&number) else { return };
        // Without a sender there is no client any more, and a guard could not report its release.
        let (Some(reply), Some(driver)) = (acquisition.reply.take(), self.sender.upgrade()) else {
            self.decide(Event::Release { number });
            return;
        };
        self.metrics.acquired(self.now.remaining(acquisition.requested_at));
        acquisition.held_since = Some(self.now);
        let lease = Arc::new(SharedLease::new(expiry));
        acquisition.lease = Some(Arc::clone(&lease));
        let id = AcquisitionId { client: self.settings.client, number };
        let held = HeldLock { name: acquisition.name.clone(), id, fencing_token, lease, driver };
        // If the caller has gone, the guard comes back and is dropped here: its message finds the
        // inbox open.
        let _ = reply.send(Ok(Arc::new(held)));
    }

    fn answer_downgrade(&mut self, number: u64, answer: Result<(), LockError>) {
        let acquisition = self.acquisitions.get_mut(&number);
        if let Some(done) = acquisition.and_then(|acquisition| acquisition.downgraded.take()) {
            // A caller that has gone needs no answer.
            let _ = done.send(answer);
        }
    }

    /// Extends a lease for its guard. The event that led here was decided on an earlier reading of
    /// the clock, since which the guard may have seen the lock as lost.
    fn extend(&mut self, number: u64, expiry: Expiry) {
        let extended = self.lease(number).map(|lease| lease.extend(expiry));
        if let Some(Err(reason)) = extended {
            self.decide(Event::SeenAsLost { number, reason });
        }
    }

    fn lose(&mut self, number: u64, reason: LossReason) {
        // The lease comes first: the caller of a downgrade goes on below, and looks at it.
        if let Some(lease) = self.lease(number) {
            lease.lose(reason);
        }
        self.metrics.lost(reason);
        if let Some(acquisition) = self.acquisitions.get_mut(&number) {
            acquisition.stop_holding(self.now, &self.metrics);
            tracing::warn!(lock = %acquisition.name, %reason, "a lock was lost");
            // No answer to a downgrade will come. Its caller sees that the lock is lost.
            acquisition.downgraded = None;
        }
    }

    fn end(&mut self, number: u64, outcome: Result<ReleaseOutcome, BackendError>) {
        let Some(acquisition) = self.acquisitions.remove(&number) else { return };
        if let Err(error) = &outcome {
            tracing::warn!(lock = %acquisition.name, %error, "a lock could not be released");
        }
        if let Some(ended) = acquisition.ended {
            // A caller that has gone needs no answer.
            let _ = ended.send(outcome);
        }
    }

    fn lease(&self, number: u64) -> Option<&SharedLease> {
        self.acquisitions.get(&number)?.lease.as_deref()
    }

    /// Returns how long to wait for the answer to a request, or none if the backend gives up
    /// before.
    fn limit(&self, limit: Duration) -> Option<Duration> {
        Some(limit).filter(|limit| self.request_timeout.is_none_or(|within| within > *limit))
    }

    // The following functions call the trait object itself: the implementation for an `Arc` would
    // box each returned future once more.

    fn acquire(&self, request: AcquireRequest) {
        let backend = Arc::clone(&self.backend);
        // At least half of the lease should be left when the lock is granted.
        let limit = self.limit(CALL_MAX.min(self.settings.lease / 2));
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).acquire(&request)).await;
                Event::AcquireAnswered { number: request.id.number, answer }
            }
            .boxed(),
        );
    }

    fn renew(&self, numbers: Vec<u64>, lock_refs: Vec<LockRef>) {
        let backend = Arc::clone(&self.backend);
        let lease = self.settings.lease;
        // The renewal is sent at a third of the lease, so there is room for a second one.
        let limit = Some(CALL_MAX.min(lease / 3));
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).renew(&lock_refs, lease)).await;
                Event::RenewAnswered { numbers, answer }
            }
            .boxed(),
        );
    }

    fn release(&self, request: ReleaseRequest) {
        let backend = Arc::clone(&self.backend);
        let limit = self.limit(CALL_MAX);
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).release(&request)).await;
                Event::ReleaseAnswered { number: request.lock_ref.id.number, answer }
            }
            .boxed(),
        );
    }
}

/// Runs one of many calls that are polled together in one task, without tokio's cooperative budget:
/// that would run out in the middle of calls that came together. The task itself bounds how many it
/// polls in a row.
async fn limited<T>(
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    match limit {
        Some(limit) => unconstrained(within(limit, call)).await,
        None => unconstrained(call).await,
    }
}

/// Limits the time of a call. Whether a call without an answer was carried out is unknown.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or_else(|_elapsed| Err(BackendError::unanswered()))
}

/// Listens forever. A connection that fails costs wake-ups; each waiter then tries again at its
/// next heartbeat.
async fn listen(
    backend: Arc<dyn Backend>,
    metrics: ClientMetrics,
    client: u128,
    wake_ups: mpsc::UnboundedSender<WakeUp>,
) {
    loop {
        let Err(error) = backend.listen(client, &wake_ups).await;
        metrics.interrupted();
        tracing::warn!(backend = backend.name(), %error, "wake-ups are interrupted");
        // Wake-ups may have been lost with the connection. The receiver ends with the driver, and
        // this task with it.
        let _ = wake_ups.send(WakeUp::All);
        tokio::time::sleep(LISTEN_RETRY).await;
    }
}
