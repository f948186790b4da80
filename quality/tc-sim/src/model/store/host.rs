//! Where the store runs, and the way of a request there and back.
//!
//! A request is carried out also if its sender is asleep, dead or gone by then: that is how a late
//! batch of a former leader reaches the store.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use handfast_core::{Change, Epoch, Record};
use handfast_server::store::codec::encode_change;

use super::journal::{EncodedRecords, Journal, RowPosition};
use super::lease::{Lease, LeaseAnswer, LeaseHolder};
use crate::model::observation::{LeadEvent, Observation, Observer};
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};

/// The store of a run.
pub(crate) struct StoreHost {
    pub(super) world: Arc<World>,
    observer: Arc<dyn Observer>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    lease: Lease,
    /// The coordinator that has laid the newest mark.
    leader: Option<usize>,
    lives: u64,
    slow_until: u64,
    stuck_until: u64,
    fails_next: bool,
    /// Until when each coordinator is cut off.
    cut_off_until: Vec<u64>,
}

/// The connection broke before an answer came: what was asked for is done, or not, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoAnswer;

/// The answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchAnswer {
    Durable,
    /// Another process leads.
    Deposed,
    /// The write failed.
    Failed,
}

impl StoreHost {
    pub(crate) fn new(world: &Arc<World>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let state = State {
            journal: Journal::new(),
            lease: Lease::default(),
            leader: None,
            lives: 0,
            slow_until: 0,
            stuck_until: 0,
            fails_next: false,
            cut_off_until: vec![0; world.plan.servers],
        };
        Arc::new(Self { world: Arc::clone(world), observer, state: Mutex::new(state) })
    }

    /// Returns the coordinator that leads, if it has noticed.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.lock().leader
    }

    /// Ends the lease without telling the leader.
    pub(crate) fn take_lease_away(&self) {
        self.lock().lease.take_away();
    }

    /// Makes requests slow until a point in time.
    pub(crate) fn slow_down(&self, until: u64) {
        self.lock().slow_until = until;
    }

    /// Blocks requests until a point in time.
    pub(crate) fn stall(&self, until: u64) {
        self.lock().stuck_until = until;
    }

    /// Makes the next batch fail.
    pub(crate) fn fail_next_write(&self) {
        self.lock().fails_next = true;
    }

    /// Cuts a coordinator off until a point in time. Its clients still reach it.
    pub(crate) fn cut_off(&self, server: usize, until: u64) {
        self.lock().cut_off_until[server] = until;
    }

    /// Ends everything that is slow, stuck or cut off, and failures to come.
    pub(crate) fn heal(&self) {
        let mut state = self.lock();
        (state.slow_until, state.stuck_until, state.fails_next) = (0, 0, false);
        state.cut_off_until.fill(0);
    }

    /// Makes a process of a coordinator known.
    pub(super) fn admit(&self, server: usize) -> LeaseHolder {
        let mut state = self.lock();
        state.lives += 1;
        LeaseHolder { server, life: state.lives }
    }

    /// Sends a request, and waits for the answer.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        from: usize,
        request: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let host = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            if host.arrives(from).await {
                host.answer(from, request(&host), answer).await;
            }
        });
        answered.await.map_err(|_closed| NoAnswer)
    }

    /// Sends a batch as [`ask`](Self::ask). If its sender is gone when it arrives, its fate is
    /// drawn.
    pub(super) async fn append(
        self: &Arc<Self>,
        from: usize,
        last: RowPosition,
        batch: Arc<[Change]>,
    ) -> Result<BatchAnswer, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let host = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            if host.arrives(from).await && (!answer.is_canceled() || host.survives(from)) {
                let done = host.store(from, last, &batch);
                host.answer(from, done, answer).await;
            }
        });
        answered.await.map_err(|_closed| NoAnswer)
    }

    /// Returns whether the message arrives, when it does or its connection breaks.
    async fn arrives(&self, from: usize) -> bool {
        let slow = self.lock().slow_until > self.world.now();
        let longest = if slow { 800 * MS } else { 3 * MS };
        self.wait(self.world.between(200, longest)).await;
        loop {
            // Looked at again at least once a second, since healing ends it early.
            let stuck_until = self.lock().stuck_until;
            let now = self.world.now();
            if stuck_until <= now {
                break;
            }
            self.wait((stuck_until - now).min(SECOND)).await;
        }
        self.passes(from, Fault::StoreRequestLost).await
    }

    async fn answer<T>(&self, to: usize, done: T, answer: oneshot::Sender<T>) {
        if self.passes(to, Fault::StoreAnswerLost).await {
            self.wait(self.world.between(50, MS)).await;
            // Its process may be dead.
            let _gone = answer.send(done);
        }
    }

    async fn passes(&self, server: usize, lost: Fault) -> bool {
        let is_cut_off = self.lock().cut_off_until[server] > self.world.now();
        let passes = !is_cut_off && !self.world.strikes(lost);
        if !passes {
            // Until its connection breaks.
            self.wait(self.world.between(MS, 2 * SECOND)).await;
        }
        passes
    }

    async fn wait(&self, duration: u64) {
        self.world.sleep(duration).await;
    }

    /// Draws the fate of a batch whose sender has died or given up. Returns whether it is carried
    /// out: the store drops a batch that is torn.
    fn survives(&self, from: usize) -> bool {
        let fates = [Fault::WriteLost, Fault::WriteTorn, Fault::WriteUnacknowledged];
        let weights = fates.map(|fault| self.world.plan.permille(fault));
        let total: u64 = weights.iter().sum();
        if !self.world.faulty() || total == 0 {
            return false;
        }
        let mut drawn = self.world.between(1, total);
        let fate = fates.into_iter().zip(weights).find(|(_, weight)| {
            let is_chosen = drawn <= *weight;
            drawn = drawn.saturating_sub(*weight);
            is_chosen
        });
        let Some((fate, _)) = fate else { return false };
        self.world.count_fault(fate);
        self.world.log(Owner::Server(from), || format!("unsynced batch: {fate}"));
        fate == Fault::WriteUnacknowledged
    }

    /// Stores a batch, or finds out that an earlier message has done so.
    fn store(&self, from: usize, last: RowPosition, batch: &[Change]) -> BatchAnswer {
        let mut state = self.lock();
        if std::mem::take(&mut state.fails_next) {
            return BatchAnswer::Failed;
        }
        let changes = batch.iter().map(encode_change).collect();
        if state.journal.append(last, changes) {
            drop(state);
            self.world.log(Owner::Server(from), || format!("stored {}", describe(batch)));
            self.observer.observe(&Observation::Stored { epoch: last.epoch, batch });
            return BatchAnswer::Durable;
        }
        // It may have been stored by an earlier message whose answer was lost.
        let is_there = state.journal.newest() == last.next();
        if is_there { BatchAnswer::Durable } else { BatchAnswer::Deposed }
    }

    /// Lets a candidate have the lease, if no other has it.
    pub(super) fn take_lease(&self, candidate: LeaseHolder, at_least: Epoch) -> LeaseAnswer {
        let now = self.world.now();
        let mut state = self.lock();
        let at_least = at_least.max(state.journal.newest().epoch.next());
        if self.world.plan.servers == 1 {
            // The process before is dead, and its directory is free.
            state.lease.take_away();
        }
        state.lease.take(now, candidate, at_least)
    }

    pub(super) fn renew_lease(&self, holder: LeaseHolder, epoch: Epoch) -> bool {
        let now = self.world.now();
        self.lock().lease.renew(now, holder, epoch)
    }

    pub(super) fn give_up_lease(&self, holder: LeaseHolder, epoch: Epoch) {
        self.lock().lease.give_up(holder, epoch);
    }

    pub(super) fn newest(&self) -> RowPosition {
        self.lock().journal.newest()
    }

    pub(super) fn applied(&self) -> u64 {
        self.lock().journal.applied()
    }

    pub(super) fn compact(&self, seen_applied: u64, upto: u64) {
        self.lock().journal.compact(seen_applied, upto);
    }

    /// Lays a candidate's mark. Returns whether it is laid.
    pub(super) fn lay_mark(&self, server: usize, newest: RowPosition, epoch: Epoch) -> bool {
        let mut state = self.lock();
        let is_laid = state.journal.lay_mark(newest, epoch);
        if is_laid {
            state.leader = Some(server);
            let displaced_until = state.lease.displaced_until();
            drop(state);
            self.world.log(Owner::Server(server), || format!("lays the mark of {}", epoch.0));
            let event = LeadEvent::Marked { server, epoch, displaced_until };
            self.observer.observe(&Observation::Lead(event));
        }
        is_laid
    }

    /// Reads the records up to a mark, unless a later leader has carried over more.
    pub(super) fn read(&self, mark: RowPosition) -> Option<EncodedRecords> {
        let state = self.lock();
        if state.journal.applied() > mark.number {
            return None;
        }
        let records = state.journal.read(mark.number);
        // A reader that was deposed meanwhile is right to see less, and never leads by it.
        let is_newest = state.journal.newest() == mark;
        drop(state);
        if is_newest {
            let event = LeadEvent::Read { epoch: mark.epoch, records: &records };
            self.observer.observe(&Observation::Lead(event));
        }
        Some(records)
    }

    /// Reports that a leader has ended as planned.
    pub(super) fn observe_resigned(&self, epoch: Epoch) {
        self.observer.observe(&Observation::Lead(LeadEvent::Resigned { epoch }));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes the changes of a batch for the log.
fn describe(batch: &[Change]) -> String {
    let words = batch.iter().map(|change| match change {
        Change::Put(Record::Global(global)) => format!("global {} {:?}", global.xid, global.state),
        Change::Put(Record::Branch(branch)) => {
            format!("branch {}/{} {:?}", branch.xid, branch.id, branch.state)
        }
        Change::Put(Record::Lease(lease)) => format!("lease {:?} of {}", lease.id, lease.name),
        Change::Put(Record::Saga(saga)) => format!("saga {} {:?}", saga.xid, saga.state),
        Change::Put(Record::Closure(closure)) => closure.to_string(),
        Change::Delete(key) => format!("gone {key:?}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for StoreHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHost").field("state", &self.state).finish_non_exhaustive()
    }
}
