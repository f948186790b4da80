//! Carries out what the machine decides: one task for all locks of a client, and one that listens
//! for wake-ups.
//!
//! It holds no lock state of its own, only the ends of channels to those who wait and those who
//! hold. It goes on after the last guard is dropped, until everything is let go.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, unconstrained};

use crate::backend::{Ask, Backend, Hold, Leave, Share, Wake};
use crate::clock::{Alarm, Moment};
use crate::error::{BackendError, LockError, Lost, Outcome};
use crate::figures::Figures;
use crate::guard::{Held, Lease, Standing};
use crate::machine::{Effect, Event, Machine, Patience, Settings, Until};
use crate::name::{Fence, LockName, Token};

/// How long one request may take, unless the lease is shorter than that allows.
const CALL_MAX: Duration = Duration::from_secs(5);
/// How many messages, and how many answers, are taken before deadlines and wake-ups have a turn.
const TOGETHER: usize = 64;
/// The pause before listening again after the connection failed.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);

type Reply = oneshot::Sender<Result<Arc<Held>, LockError>>;
type Ended = oneshot::Sender<Result<Outcome, BackendError>>;

/// What clients and guards ask of the shell.
#[derive(Debug)]
pub(crate) enum Message {
    /// A lock.
    Ask { number: u64, name: LockName, share: Share, patience: Patience, reply: Reply },
    /// To be a reader from here on.
    Downgrade { number: u64, done: oneshot::Sender<()> },
    /// An end of it.
    LetGo { number: u64, ended: Option<Ended> },
    /// A sign when nothing is left of what was let go.
    Settle(oneshot::Sender<()>),
}

/// Who is told what becomes of an acquisition.
#[derive(Debug)]
struct Desk {
    name: LockName,
    asked_at: Moment,
    /// Until it is let go or lost.
    held_since: Option<Moment>,
    reply: Option<Reply>,
    lease: Option<Arc<Lease>>,
    downgraded: Option<oneshot::Sender<()>>,
    ended: Option<Ended>,
}

impl Desk {
    fn new(name: LockName, asked_at: Moment, reply: Reply) -> Self {
        Self {
            name,
            asked_at,
            held_since: None,
            reply: Some(reply),
            lease: None,
            downgraded: None,
            ended: None,
        }
    }

    fn stop_holding(&mut self, now: Moment, figures: &Figures) {
        if let Some(since) = self.held_since.take() {
            figures.held(now.left(since));
        }
    }
}

/// What has woken the shell.
enum First {
    /// `None` when nobody can send one any more.
    Message(Option<Message>),
    Answer(Event),
    Event(Event),
}

pub(crate) struct Shell {
    machine: Machine,
    /// When the shell was last woken: one look at the clock for all that has come together.
    now: Moment,
    settings: Settings,
    backend: Arc<dyn Backend>,
    /// How long the backend takes for an answer, if it sees to that itself.
    answers_within: Option<Duration>,
    figures: Figures,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// For the guards. Weak, so that the inbox closes when nobody outside has it any more.
    sender: mpsc::WeakUnboundedSender<Message>,
    desks: HashMap<u64, Desk>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    settling: Vec<oneshot::Sender<()>>,
    /// Empty between events: kept for its room.
    effects: Vec<Effect>,
}

impl Shell {
    pub(crate) fn new(
        settings: Settings,
        backend: Arc<dyn Backend>,
    ) -> (Self, mpsc::UnboundedSender<Message>) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let shell = Self {
            machine: Machine::new(settings.clone()),
            now: Moment::now(),
            settings,
            answers_within: backend.answers_within(),
            figures: Figures::of(&backend),
            backend,
            inbox,
            sender: sender.downgrade(),
            desks: HashMap::new(),
            calls: FuturesUnordered::new(),
            settling: Vec::new(),
            effects: Vec::new(),
        };
        (shell, sender)
    }

    /// Serves until nobody is left to be served.
    pub(crate) async fn serve(mut self) {
        let (wakes, mut woken) = mpsc::unbounded_channel();
        let (backend, figures) = (Arc::clone(&self.backend), self.figures.clone());
        // A task of its own, which ends with this one: here it would be looked at whenever anything
        // else happens.
        let mut listening = JoinSet::new();
        listening.spawn(listen(backend, figures, self.settings.client, wakes));
        let (mut is_open, mut alarm) = (true, Alarm::default());
        while is_open || !self.machine.is_idle() {
            alarm.set(self.machine.next_deadline());
            let first = tokio::select! {
                message = self.inbox.recv(), if is_open => First::Message(message),
                Some(event) = self.calls.next(), if !self.calls.is_empty() => First::Answer(event),
                Some(wake) = woken.recv() => First::Event(Event::Woken(wake)),
                // The machine looks at the time itself, so an early one does nothing.
                () = alarm.rings() => First::Event(Event::Tick),
            };
            self.now = Moment::now();
            match first {
                First::Message(Some(message)) => self.take(message),
                First::Message(None) => is_open = false,
                First::Answer(event) => self.answered(event),
                First::Event(event) => self.decide(event),
            }
            self.take_more();
            self.settle();
        }
    }

    /// What has come together with what woke the shell. Waiting for each of them by itself would
    /// cost more than serving it.
    fn take_more(&mut self) {
        for _ in 0..TOGETHER {
            let Ok(message) = self.inbox.try_recv() else { break };
            self.take(message);
        }
        for _ in 0..TOGETHER {
            // Whoever is not ready is waited for with everything else.
            let Some(Some(event)) = self.calls.next().now_or_never() else { break };
            self.answered(event);
        }
    }

    fn answered(&mut self, event: Event) {
        self.figures.see(&event);
        self.decide(event);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Ask { number, name, share, patience, reply } => {
                self.desks.insert(number, Desk::new(name.clone(), self.now, reply));
                self.decide(Event::Ask { number, name, share, patience });
            }
            Message::Downgrade { number, done } => {
                if let Some(desk) = self.desks.get_mut(&number) {
                    desk.downgraded = Some(done);
                }
                self.decide(Event::Downgrade { number });
            }
            Message::LetGo { number, ended } => {
                if let Some(desk) = self.desks.get_mut(&number) {
                    desk.ended = desk.ended.take().or(ended);
                    desk.stop_holding(self.now, &self.figures);
                }
                self.decide(Event::LetGo { number });
            }
            Message::Settle(settled) => self.settling.push(settled),
        }
    }

    fn settle(&mut self) {
        if !self.settling.is_empty() && self.machine.is_settled() {
            for settled in self.settling.drain(..) {
                // Who does not wait any more need not know.
                let _ = settled.send(());
            }
        }
    }

    fn decide(&mut self, event: Event) {
        // An effect may lead to an event, which begins with a list of its own.
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.decide(self.now, event, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Ask(ask) => self.ask(ask),
            Effect::Renew { numbers, holds } => self.renew(numbers, holds),
            Effect::Leave(leave) => self.leave(leave),
            Effect::Granted { number, fence, until } => self.grant(number, fence, until),
            Effect::Refused { number, why } => {
                self.figures.refused(&why);
                if let Some(reply) = self.desks.remove(&number).and_then(|desk| desk.reply) {
                    // Who does not wait any more need not know.
                    let _ = reply.send(Err(why));
                }
            }
            Effect::Extended { number, until } => {
                self.tell(number, |standing| standing.until = until);
            }
            Effect::Downgraded { number } => {
                let desk = self.desks.get_mut(&number);
                if let Some(done) = desk.and_then(|desk| desk.downgraded.take()) {
                    // Who does not wait any more need not know.
                    let _ = done.send(());
                }
            }
            Effect::Lost { number, why } => self.lose(number, why),
            Effect::Ended { number, outcome } => self.end(number, outcome),
        }
    }

    /// A guard for whoever asked. If he has gone, it is dropped on the way, which lets go.
    fn grant(&mut self, number: u64, fence: Fence, until: Until) {
        let Some(desk) = self.desks.get_mut(&number) else { return };
        let (Some(reply), Some(shell)) = (desk.reply.take(), self.sender.upgrade()) else {
            self.decide(Event::LetGo { number });
            return;
        };
        self.figures.acquired(self.now.left(desk.asked_at));
        desk.held_since = Some(self.now);
        let lease = Arc::new(Lease::new(until));
        desk.lease = Some(Arc::clone(&lease));
        let token = Token { client: self.settings.client, number };
        let held = Held { name: desk.name.clone(), token, fence, lease, shell };
        // Unread, it comes back and is dropped here: its message finds the inbox open.
        let _ = reply.send(Ok(Arc::new(held)));
    }

    fn lose(&mut self, number: u64, why: Lost) {
        self.tell(number, |standing| standing.lost = Some(why));
        self.figures.lost(why);
        if let Some(desk) = self.desks.get_mut(&number) {
            desk.stop_holding(self.now, &self.figures);
            tracing::warn!(lock = %desk.name, %why, "a lock was lost");
            // Nobody answers that any more. Whoever waits for it sees that the lock is lost.
            desk.downgraded = None;
        }
    }

    fn end(&mut self, number: u64, outcome: Result<Outcome, BackendError>) {
        let Some(desk) = self.desks.remove(&number) else { return };
        if let Err(error) = &outcome {
            tracing::warn!(lock = %desk.name, %error, "a lock could not be let go");
        }
        if let Some(ended) = desk.ended {
            // Who does not wait any more need not know.
            let _ = ended.send(outcome);
        }
    }

    fn tell(&self, number: u64, change: impl FnOnce(&mut Standing)) {
        if let Some(lease) = self.desks.get(&number).and_then(|desk| desk.lease.as_ref()) {
            lease.change(change);
        }
    }

    /// How long the answer to a request is waited for here, if the backend does not give up before.
    fn limit(&self, limit: Duration) -> Option<Duration> {
        Some(limit).filter(|limit| self.answers_within.is_none_or(|within| within > *limit))
    }

    // The following call the trait object itself: what is implemented for an `Arc` boxes once more
    // what it returns.

    fn ask(&self, ask: Ask) {
        let backend = Arc::clone(&self.backend);
        // Half of the lease should be left of what is granted.
        let limit = self.limit(CALL_MAX.min(self.settings.lease / 2));
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).ask(&ask)).await;
                Event::Answered { number: ask.token.number, answer }
            }
            .boxed(),
        );
    }

    fn renew(&self, numbers: Vec<u64>, holds: Vec<Hold>) {
        let backend = Arc::clone(&self.backend);
        let lease = self.settings.lease;
        // It is sent at a third: there is room for a second one.
        let limit = Some(CALL_MAX.min(lease / 3));
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).renew(&holds, lease)).await;
                Event::Renewed { numbers, answer }
            }
            .boxed(),
        );
    }

    fn leave(&self, leave: Leave) {
        let backend = Arc::clone(&self.backend);
        let limit = self.limit(CALL_MAX);
        self.calls.push(
            async move {
                let answer = limited(limit, (*backend).leave(&leave)).await;
                Event::Left { number: leave.hold.token.number, answer }
            }
            .boxed(),
        );
    }
}

/// A request as one of many that are polled together in one task, which bounds how many itself: the
/// runtime's budget for a task would end in the middle of those that came together.
async fn limited<T>(
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    match limit {
        Some(limit) => unconstrained(within(limit, call)).await,
        None => unconstrained(call).await,
    }
}

/// A request that gets no answer in time is one of which nothing is known.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or_else(|_elapsed| Err(BackendError::unanswered()))
}

/// Listens for ever. A connection that fails costs wake-ups; whoever waits looks by himself then.
async fn listen(
    backend: Arc<dyn Backend>,
    figures: Figures,
    client: u128,
    wakes: mpsc::UnboundedSender<Wake>,
) {
    loop {
        let Err(error) = backend.listen(client, &wakes).await;
        figures.interrupted();
        tracing::warn!(backend = backend.name(), %error, "wake-ups are interrupted");
        // The shell ends this task when it ends.
        let _ = wakes.send(Wake::All);
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}
