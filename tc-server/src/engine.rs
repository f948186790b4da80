//! The engine: one task that owns the coordinator.
//!
//! It takes the requests that have arrived, decides each, gives all their changes to the store as
//! one batch (group commit) and releases the effects, in order, when the batch is durable
//! (DURABLE-FIRST). While a batch is being written, the next one is decided; it goes to the store
//! before the effects of the earlier one leave, so that the disk does not wait. Changes that no
//! request waits for linger, to be written with the next ones. A batch that fails leaves memory
//! ahead of the store, so nothing more is answered from that state: if the leadership is lost, the
//! engine drops it and tries to lead again from the records; after any other failure it ends.

mod alarm;
mod batch_builder;
mod failure;
mod handle;
mod inbox;
mod leadership;
mod pending_replies;
mod scans;
mod settings;

use std::collections::VecDeque;
use std::future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_core::{Command, Coordinator, Decided, Epoch, Request, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::crash_point::crash_point;
use crate::dispatch::EffectSink;
use crate::off_the_loop::off_the_loop;
use crate::store::{Leader, Store, StoreError};
use alarm::Alarm;
use inbox::{EngineTask, Inbox};
use pending_replies::{PendingReplies, log_globals_in_need};
use scans::{Scans, look};

pub use batch_builder::{Batch, BatchBuilder, Outgoing};
pub use failure::EngineFailure;
pub(crate) use failure::ended;
pub use handle::{EngineError, EngineHandle, EngineResult, Permit, ReplySink};
pub use leadership::Leadership;
pub(crate) use leadership::changed;
pub use settings::Settings;

/// How long a process that has handed over the lead does not try to lead. Too short: it takes the
/// lead back before a slow candidate has seen that the lead is free. Too long: if there is no other
/// process, none leads for that long.
const HAND_OVER_MS: u64 = 500;

/// A started engine.
#[derive(Debug)]
pub struct Engine {
    /// Sends requests to it.
    pub handle: EngineHandle,
    /// How it stands.
    pub leadership: watch::Receiver<Leadership>,
    /// Ends with `Ok` after [`EngineHandle::stop`]; an error must stop the process.
    pub ended: JoinHandle<Result<(), EngineFailure>>,
}

/// An engine that is to be run.
#[derive(Debug)]
pub struct ReadyEngine<Run> {
    /// Sends requests to it.
    pub handle: EngineHandle,
    /// How it stands.
    pub leadership: watch::Receiver<Leadership>,
    /// The engine itself; ends as [`Engine::ended`].
    pub run: Run,
}

impl Engine {
    /// Starts the engine, and waits until it leads.
    ///
    /// # Errors
    ///
    /// When the store cannot be led or its records cannot be loaded.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        phase_two: Arc<dyn EffectSink>,
    ) -> Result<Self, EngineFailure> {
        let mut engine = Self::launch(store, clock, settings, phase_two);
        engine.until_leading().await?;
        Ok(engine)
    }

    /// Starts the engine, which follows until it gains the lead in the store.
    pub fn launch(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        phase_two: Arc<dyn EffectSink>,
    ) -> Self {
        let prepared = Self::prepare(store, clock, settings, phase_two);
        let ReadyEngine { handle, leadership, run } = prepared;
        Self { handle, leadership, ended: tokio::spawn(run) }
    }

    /// Waits until the engine leads, or was stopped before that. Must not be called again after an
    /// error.
    ///
    /// # Errors
    ///
    /// When the store cannot be led or its records cannot be loaded.
    pub async fn until_leading(&mut self) -> Result<(), EngineFailure> {
        let decided = |it: &Leadership| matches!(it, Leadership::Leading(_) | Leadership::Ended);
        // Without a sender the engine has ended.
        let leads = self.leadership.wait_for(decided).await.is_ok_and(|it| it.epoch().is_some());
        if leads { Ok(()) } else { ended((&mut self.ended).await) }
    }

    /// Makes an engine and leaves it to the caller to run it: a simulator has no runtime.
    pub fn prepare(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        phase_two: Arc<dyn EffectSink>,
    ) -> ReadyEngine<impl Future<Output = Result<(), EngineFailure>> + Send> {
        let inbox = Arc::new(Inbox::new(settings.queue_max));
        // Before the engine leads there is no state to decide from.
        inbox.suspend();
        let leadership = watch::Sender::new(Leadership::without_lead(&store.leader().borrow()));
        let receiver = leadership.subscribe();
        let running = Running {
            inbox: Arc::clone(&inbox),
            replies: PendingReplies::new(phase_two, settings.alerts.clone()),
            store,
            clock,
            settings,
            leadership,
        };
        ReadyEngine { handle: EngineHandle::new(inbox), leadership: receiver, run: running.run() }
    }
}

/// The loop's parts that outlive a term of leadership.
#[derive(Debug)]
struct Running {
    inbox: Arc<Inbox>,
    replies: PendingReplies,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    leadership: watch::Sender<Leadership>,
}

/// One term of leadership.
#[derive(Debug)]
struct Term {
    epoch: Epoch,
    batch: BatchBuilder,
    scans: Scans,
}

/// A sealed batch and the write that makes it durable.
struct Writing {
    outgoing: Vec<Outgoing>,
    write: BoxFuture<'static, Result<(), StoreError>>,
}

impl Writing {
    /// Starts the write before it is waited for.
    fn begun(mut self) -> Self {
        if let Some(written) = (&mut self.write).now_or_never() {
            self.write = future::ready(written).boxed();
        }
        self
    }
}

/// The clocks at the time when the requests were taken from the inbox.
#[derive(Clone, Copy, Debug)]
struct BatchClock {
    /// For the core.
    now: Timestamp,
    /// For measurements.
    at: Instant,
}

/// The event that woke the loop.
enum Wakeup {
    Written(Result<(), StoreError>),
    Arrived(VecDeque<EngineTask>),
    Closed,
    Due,
    Deposed,
}

impl Running {
    async fn run(mut self) -> Result<(), EngineFailure> {
        while let Some(mut term) = self.lead().await? {
            // The inbox is opened first, so that a front end that sees the engine lead finds it
            // open.
            self.inbox.resume();
            self.leadership.send_replace(Leadership::Leading(term.epoch));
            match self.serve(&mut term).await {
                Ok(()) if self.inbox.is_closed() => {
                    self.store.resign(term.epoch).await;
                    break;
                }
                Ok(()) => self.hand_over(term.epoch).await,
                Err(StoreError::LostLeadership) => {
                    tracing::warn!(epoch = term.epoch.0, "leadership lost");
                    self.step_down();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.leadership.send_replace(Leadership::Ended);
        self.replies.abandon(EngineError::Stopping);
        Ok(())
    }

    /// Gains the lead, however long that takes. Returns `None` if the engine is stopped meanwhile.
    async fn lead(&self) -> Result<Option<Term>, EngineFailure> {
        let mut leader = self.store.leader();
        // One future lives through all turns: dropping it would give up the attempt to lead.
        let mut gained = pin!(self.gain());
        loop {
            self.follow(&leader.borrow_and_update());
            tokio::select! {
                biased;
                () = self.inbox.closed() => return Ok(None),
                term = &mut gained => return term.map(Some),
                () = changed(&mut leader) => {}
            }
        }
    }

    fn follow(&self, leader: &Leader) {
        if let Leader::Elsewhere { epoch, node } = leader {
            tracing::info!(leader = node.id, epoch = epoch.0, "following");
        }
        self.leadership.send_replace(Leadership::without_lead(leader));
    }

    async fn gain(&self) -> Result<Term, EngineFailure> {
        // The clock is read once for epoch and counters: gaining the lead may last into the next
        // minute (decision 0014).
        let epoch_taken_at = self.clock.now();
        let (epoch, mut records) =
            self.store.lead_and_feed(Epoch::of_clock(epoch_taken_at)).await?;
        crash_point("after-lead");
        let address = Arc::clone(&self.settings.address);
        let limits = self.settings.limits.clone();
        let clock = Arc::clone(&self.clock);
        let is_sole_leader = self.store.certain_until(epoch).is_none();
        let load = move || {
            let loaded = Coordinator::load_in_order(epoch, address, limits, &mut records);
            // What was read before the store failed may well contradict itself.
            let count = records.end()?;
            let mut coordinator = loaded?;
            coordinator.resume(epoch_taken_at, clock.now());
            Ok::<_, EngineFailure>((BatchBuilder::new(coordinator, is_sole_leader), count))
        };
        // Loading millions of records takes seconds, in which the lease must be renewed. Boxed,
        // since the future has room for a whole coordinator.
        let (batch, count) = Box::pin(off_the_loop(load)).await?;
        tracing::info!(epoch = epoch.0, records = count, "leading");
        Ok(Term { epoch, batch, scans: Scans::default() })
    }

    /// Gives up the lead, and leaves another process the time to take it.
    async fn hand_over(&mut self, epoch: Epoch) {
        tracing::info!(epoch = epoch.0, "handing over the lead");
        // The lead is given up first, so that waiting requests are answered when another process
        // can lead.
        self.store.resign(epoch).await;
        self.step_down();
        let again = Timestamp(self.clock.now().0.saturating_add(HAND_OVER_MS));
        let mut alarm = Alarm::default();
        tokio::select! {
            biased;
            () = self.inbox.closed() => {}
            () = alarm.reach(Some(again), &*self.clock) => {}
        }
    }

    /// Drops the state of a term that is over, and refuses every waiting and queued request with
    /// `NotLeading`.
    fn step_down(&mut self) {
        self.leadership.send_replace(Leadership::Following(Leader::Unknown));
        self.replies.abandon(EngineError::NotLeading);
        self.replies.clear_phase_two();
        refuse(self.inbox.suspend(), EngineError::NotLeading);
    }

    /// Leads until asked to stop or to hand over the lead, or until a batch fails.
    async fn serve(&mut self, term: &mut Term) -> Result<(), StoreError> {
        log_globals_in_need(term.batch.coordinator());
        self.settings.alerts.raise_standing(term.batch.coordinator());
        let (store, epoch) = (Arc::clone(&self.store), term.epoch);
        let mut deposed = store.lost(epoch);
        let mut writing: Option<Writing> = None;
        let mut alarm = Alarm::default();
        let mut open = true;
        loop {
            // Not left to an idle moment: under load there is none.
            self.tick_if_due(&mut term.batch);
            self.scan_if_due(term);
            if writing.is_none() && (!open || self.is_to_be_sealed(&term.batch)) {
                writing = self.seal(term);
            }
            // Everything that was taken in is durable, and its effects are released.
            if writing.is_none() && !open {
                return Ok(());
            }
            // BOUNDED: while a batch is written, at most `batch_max` requests are decided; others
            // stay queued.
            let takes = open && term.batch.requests() < self.settings.batch_max;
            let room = self.settings.batch_max - term.batch.requests().min(self.settings.batch_max);
            let sealing = if writing.is_none() { term.batch.seal_due() } else { None };
            let due = earlier(term.batch.coordinator().next_deadline(), sealing);
            let due = earlier(due, term.scans.due());
            let woken = tokio::select! {
                biased;
                // Polled first: a leader that was deposed must release nothing more.
                () = &mut deposed => Wakeup::Deposed,
                written = write(&mut writing) => Wakeup::Written(written),
                arrived = self.inbox.take(room), if takes => {
                    arrived.map_or(Wakeup::Closed, Wakeup::Arrived)
                }
                () = alarm.reach(due, &*self.clock) => Wakeup::Due,
            };
            match woken {
                Wakeup::Written(written) => {
                    written?;
                    let durable = writing.take();
                    term.batch.written();
                    // The next write is started first, since releasing effects takes a while.
                    writing = self.write_on(term);
                    self.release(durable);
                }
                Wakeup::Arrived(work) => self.decide_all(term, work),
                Wakeup::Closed => {
                    open = false;
                    // A planned end loses no global that has no branch yet (decision 0020).
                    term.batch.store_begun();
                }
                Wakeup::Due => {}
                Wakeup::Deposed => return Err(StoreError::LostLeadership),
            }
        }
    }

    /// Starts the write of everything that has arrived and been decided by now.
    fn write_on(&mut self, term: &mut Term) -> Option<Writing> {
        let room = self.settings.batch_max.saturating_sub(term.batch.requests());
        let arrived = self.inbox.try_take(room);
        self.decide_all(term, arrived);
        if self.is_to_be_sealed(&term.batch) { self.seal(term).map(Writing::begun) } else { None }
    }

    fn is_to_be_sealed(&self, batch: &BatchBuilder) -> bool {
        let is_full = batch.requests() >= self.settings.batch_max;
        is_full || batch.seal_due().is_some_and(|due| due.0 == 0 || due <= self.clock.now())
    }

    /// Starts writing what has been decided. A batch without changes is durable already, and its
    /// replies are true if this engine still leads.
    fn seal(&mut self, term: &mut Term) -> Option<Writing> {
        let sealed = term.batch.seal()?;
        metrics::histogram!("handfast_batch_requests").record(sealed.requests as f64);
        let (store, epoch) = (Arc::clone(&self.store), term.epoch);
        let write = async move {
            if sealed.changes.is_empty() {
                return store.confirm(epoch).await;
            }
            crash_point("after-decide");
            crate::metrics::count_ended(&sealed.changes);
            metrics::histogram!("handfast_batch_changes").record(sealed.changes.len() as f64);
            let started = Instant::now();
            let written = store.commit(epoch, sealed.changes).await;
            crate::metrics::record_store_commit(started.elapsed());
            written
        };
        Some(Writing { outgoing: sealed.outgoing, write: Box::pin(write) })
    }

    fn release(&mut self, written: Option<Writing>) {
        if let Some(Writing { outgoing, .. }) = written {
            crash_point("before-effects");
            self.replies.release(outgoing);
            crash_point("after-effects");
        }
    }

    /// Decides a round of requests with one reading of the clocks, which costs as much as a small
    /// decision.
    fn decide_all(&mut self, term: &mut Term, work: VecDeque<EngineTask>) {
        let Term { epoch, batch, scans } = term;
        let clock = BatchClock { now: self.clock.now(), at: Instant::now() };
        for work in work {
            match work {
                EngineTask::Request { request, destination } => {
                    self.decide(batch, clock, request, destination);
                }
                EngineTask::View(view) => look(batch, view),
                EngineTask::Scan(scan) => scans.push(scan),
            }
        }
        let early = batch.take_early();
        if early.is_empty() {
            return;
        }
        // Another leader would know nothing of a global that this one began after its lease. The
        // clock is read after the store was asked: a store whose lease has ended answers with the
        // present.
        if self.store.certain_until(*epoch).is_none_or(|until| Instant::now() < until) {
            self.replies.release(early);
        } else {
            batch.keep_for_the_batch(early);
        }
    }

    fn decide(
        &mut self,
        batch: &mut BatchBuilder,
        clock: BatchClock,
        request: Request,
        destination: Option<handle::Destination>,
    ) {
        let asker = request.reply_to;
        let by = destination.as_ref().map(handle::Destination::asker).unwrap_or_default();
        if let (Some(to), Some(destination)) = (asker, destination) {
            self.replies.expect(to, &request.command, destination, clock.at);
        }
        if let Command::Forget { waiting } = request.command {
            self.replies.forget(waiting);
        }
        let decided = batch.decide_for(by, clock.now, request);
        if let (Decided::Waits, Some(asker)) = (decided, asker) {
            self.replies.waits(asker);
        }
    }

    /// Runs at most one scan per turn, behind what has been decided in it.
    fn scan_if_due(&self, term: &mut Term) {
        if term.scans.due().is_none() {
            return;
        }
        let from = self.clock.now();
        if let Some(scan) = term.scans.take_due(from) {
            look(&mut term.batch, scan);
            term.scans.ran(from, self.clock.now());
        }
    }

    fn tick_if_due(&mut self, batch: &mut BatchBuilder) {
        let due = batch.coordinator().next_deadline();
        let now = self.clock.now();
        if due.is_some_and(|due| due <= now) {
            let clock = BatchClock { now, at: Instant::now() };
            self.decide(batch, clock, Request { reply_to: None, command: Command::Tick }, None);
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

async fn write(writing: &mut Option<Writing>) -> Result<(), StoreError> {
    match writing {
        Some(writing) => (&mut writing.write).await,
        None => future::pending().await,
    }
}

impl Drop for Running {
    /// However the engine ends, every waiting request is answered.
    fn drop(&mut self) {
        self.leadership.send_replace(Leadership::Ended);
        self.replies.abandon(EngineError::NotLeading);
        refuse(self.inbox.abandon(EngineError::NotLeading), EngineError::NotLeading);
    }
}

/// Answers queued requests with the reason why they are not taken up.
fn refuse(queued: VecDeque<EngineTask>, reason: EngineError) {
    for work in queued {
        if let EngineTask::Request { request, destination: Some(destination) } = work {
            destination.refuse(request.reply_to, reason);
        }
    }
}
