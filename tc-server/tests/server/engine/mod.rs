//! The engine: group commit, DURABLE-FIRST, time, and failures of the store. This file holds what
//! its tests share.

mod batches;
mod durability;
mod failures;
mod greeting;
mod leadership;
mod time;
mod tries;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use handfast_core::{
    BranchId, Change, Command, Correlation, DecidedBy, Decision, Effect, Epoch, Holding, Labels,
    LoanTerms, LockMode, LockShare, LockToken, LockWait, Mode, NewBranch, NewLease, Record, Reply,
    ReplyWhen, RowLock, Timestamp, VotingRounds, Xid,
};
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::EffectSink;
use handfast_server::engine::{Engine, EngineHandle, EngineResult, ReplySink, Settings};
use handfast_server::store::{MemoryStore, Store, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};

/// A store whose batches the test completes or fails, one by one.
#[derive(Debug)]
struct HeldStore {
    memory: MemoryStore,
    batches: mpsc::UnboundedSender<HeldBatch>,
}

/// A batch that waits for the test's verdict.
struct HeldBatch {
    changes: Vec<Change>,
    verdict: oneshot::Sender<Result<(), StoreError>>,
}

impl HeldStore {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<HeldBatch>) {
        let (batches, held) = mpsc::unbounded_channel();
        (Arc::new(Self { memory: MemoryStore::new(), batches }), held)
    }
}

impl Store for HeldStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.memory.lead(at_least)
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        let (verdict, answer) = oneshot::channel();
        self.batches.send(HeldBatch { changes: batch.clone(), verdict }).unwrap();
        async move {
            answer.await.unwrap()?;
            self.memory.commit(epoch, batch).await
        }
        .boxed()
    }
}

/// Records the released phase-two effects.
#[derive(Debug, Default)]
struct RecordedEffects {
    effects: Mutex<Vec<Effect>>,
    cleared: Notify,
}

impl EffectSink for RecordedEffects {
    fn take(&self, effects: Vec<Effect>) {
        self.effects.lock().unwrap().extend(effects);
    }

    fn clear(&self) {
        self.effects.lock().unwrap().clear();
        self.cleared.notify_one();
    }
}

/// Collects replies and counts the wake-ups.
#[derive(Debug, Default)]
struct CollectedReplies {
    replies: Mutex<Vec<(Correlation, EngineResult)>>,
    flushes: Mutex<usize>,
    flushed: Notify,
}

impl ReplySink for CollectedReplies {
    fn put(&self, correlation: Correlation, answered: EngineResult) {
        self.replies.lock().unwrap().push((correlation, answered));
    }

    fn flush(&self) {
        *self.flushes.lock().unwrap() += 1;
        self.flushed.notify_one();
    }
}

async fn start(store: Arc<dyn Store>, settings: Settings) -> (Engine, Arc<RecordedEffects>) {
    let recorded = Arc::new(RecordedEffects::default());
    let phase_two: Arc<dyn EffectSink> = Arc::<RecordedEffects>::clone(&recorded);
    let clock = Arc::new(WallClock::start());
    (Engine::start(store, clock, settings, phase_two).await.unwrap(), recorded)
}

async fn begin(engine: &EngineHandle) -> Xid {
    let reply = engine.call(begin_request()).await.unwrap();
    let Reply::Begun { xid, .. } = reply else { panic!("{reply:?}") };
    xid
}

fn begin_request() -> Command {
    Command::Begin {
        application: "a".into(),
        name: "b".into(),
        timeout_ms: None,
        labels: Labels::NONE,
        key: None,
        loan: LoanTerms::default(),
    }
}

fn register(xid: Xid, branch: u64) -> Command {
    let row = RowLock {
        table: "orders".into(),
        key: branch.to_be_bytes().into(),
        mode: LockMode::Exclusive,
    };
    let branch = NewBranch {
        id: BranchId(branch),
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        rows: vec![row],
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 60_000, holding: Holding::Nothing };
    Command::RegisterBranch { xid, branch, wait }
}

fn commit(xid: Xid) -> Command {
    Command::End {
        xid,
        decision: Decision::Commit,
        rounds: VotingRounds::PrepareOnly,
        by: DecidedBy::Client,
        reason: "".into(),
        reply_when: ReplyWhen::Decided,
    }
}

fn token(number: u64) -> LockToken {
    LockToken { client: [1; 16], number }
}

fn acquire(number: u64) -> Command {
    Command::AcquireLock(Box::new(wanted(number)))
}

fn wanted(number: u64) -> NewLease {
    NewLease {
        name: "orders/42".into(),
        token: token(number),
        share: LockShare::All,
        xid: None,
        label: "test".into(),
        lease_ms: 30_000,
        delay_ms: 0,
        hold_ms_max: None,
        wait_ms: 30_000,
    }
}

async fn ask(engine: EngineHandle, command: Command) -> EngineResult {
    engine.call(command).await
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}
