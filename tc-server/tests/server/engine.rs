//! The engine: group commit, DURABLE-FIRST, and failures of the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use handfast_core::{
    BranchId, Change, Command, Correlation, DecidedBy, Decision, Effect, Epoch, GlobalStatus,
    Holding, LockMode, LockShare, LockToken, LockWait, Mode, NewBranch, NewLease, PhaseTwoOutcome,
    Record, Reply, ReplyWhen, RollbackReason, RowLock, Timestamp, VotingRounds, Xid,
};
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::EffectSink;
use handfast_server::engine::{
    Engine, EngineError, EngineHandle, EngineResult, Leadership, ReplySink, Settings,
};
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
    Command::Begin { application: "a".into(), name: "b".into(), timeout_ms: None }
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

#[tokio::test]
async fn nothing_leaves_before_its_batch_is_durable() {
    let (store, mut held) = HeldStore::new();
    let (engine, recorded) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let mut registering = Box::pin(engine.handle.call(register(xid, 1)));
    let batch = tokio::select! {
        batch = held.recv() => batch.unwrap(),
        reply = &mut registering => panic!("{reply:?} left before its batch"),
    };
    assert_eq!(batch.changes.len(), 2, "the global and its branch: {:?}", batch.changes);

    // Requests decided on top of it wait with it, even reads.
    let mut status = Box::pin(engine.handle.call(Command::GetStatus { xid }));
    let mut view = Box::pin(engine.handle.view(move |coordinator| coordinator.status(xid)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!((&mut registering).now_or_never().is_none());
        assert!((&mut status).now_or_never().is_none());
        assert!((&mut view).now_or_never().is_none());
    }
    batch.verdict.send(Ok(())).unwrap();
    assert!(matches!(registering.await, Ok(Reply::Registered { .. })));
    assert_eq!(status.await, Ok(Reply::Status(GlobalStatus::Active)));
    assert_eq!(view.await, Ok(GlobalStatus::Active));

    let committing = tokio::spawn({
        let engine = engine.handle.clone();
        async move { engine.call(commit(xid)).await }
    });
    let batch = held.recv().await.unwrap();
    assert!(recorded.effects.lock().unwrap().is_empty(), "a phase-two call left before its batch");
    batch.verdict.send(Ok(())).unwrap();
    assert_eq!(committing.await.unwrap(), Ok(Reply::Ended(GlobalStatus::Committing)));
    assert!(matches!(recorded.effects.lock().unwrap()[..], [Effect::PhaseTwo(_)]));
}

/// A begin is not stored, and does not wait for anything that is.
#[tokio::test]
async fn a_begin_is_answered_while_a_batch_is_being_written() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let mut registering = Box::pin(engine.handle.call(register(xid, 1)));
    let batch = tokio::select! {
        batch = held.recv() => batch.unwrap(),
        reply = &mut registering => panic!("{reply:?} left before its batch"),
    };
    assert_ne!(begin(&engine.handle).await, xid);
    assert!((&mut registering).now_or_never().is_none());
    batch.verdict.send(Ok(())).unwrap();
    assert!(matches!(registering.await, Ok(Reply::Registered { .. })));
}

/// The reply to a release tells its client nothing new. The grant to the next waiter waits until it
/// is durable.
#[tokio::test]
async fn a_release_is_answered_while_a_batch_is_being_written() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let asking = tokio::spawn(ask(engine.handle.clone(), acquire(1)));
    held.recv().await.unwrap().verdict.send(Ok(())).unwrap();
    assert!(matches!(asking.await.unwrap(), Ok(Reply::LockGranted { .. })));

    let mut waiting = Box::pin(engine.handle.call(acquire(2)));
    assert!((&mut waiting).now_or_never().is_none());
    let releasing = tokio::select! {
        biased;
        reply = engine.handle.call(release(1)) => reply,
        _ = held.recv() => panic!("the release waits for its batch"),
    };
    assert_eq!(releasing, Ok(Reply::LockFreed));
    let batch = tokio::select! {
        reply = &mut waiting => panic!("{reply:?} left before its batch"),
        batch = held.recv() => batch.unwrap(),
    };
    assert_eq!(batch.changes.len(), 2, "the end and the grant: {:?}", batch.changes);
    assert!((&mut waiting).now_or_never().is_none());
    batch.verdict.send(Ok(())).unwrap();
    assert!(matches!(waiting.await, Ok(Reply::LockGranted { .. })));
}

/// The reply names another holder, which a crash could undo, so it waits for the batch.
#[tokio::test]
async fn a_release_that_frees_nothing_waits_for_durability() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let mut asking = Box::pin(engine.handle.call(acquire(1)));
    let batch = tokio::select! {
        reply = &mut asking => panic!("{reply:?} left before its batch"),
        batch = held.recv() => batch.unwrap(),
    };
    let mut releasing = Box::pin(engine.handle.call(release(2)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!((&mut releasing).now_or_never().is_none());
    }
    batch.verdict.send(Ok(())).unwrap();
    let Ok(Reply::LockNotHeld { current: Some(current) }) = releasing.await else { panic!() };
    assert_eq!(current.token, token(1));
}

fn token(number: u64) -> LockToken {
    LockToken { client: [1; 16], number }
}

fn acquire(number: u64) -> Command {
    Command::AcquireLock(Box::new(wanted(number)))
}

/// An acquisition that does not wait.
fn acquire_now(number: u64) -> Command {
    Command::AcquireLock(Box::new(NewLease { wait_ms: 0, ..wanted(number) }))
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

fn release(number: u64) -> Command {
    Command::ReleaseLock { name: "orders/42".into(), token: token(number), refuses_late: false }
}

/// The clock of the next process may be far ahead of the earlier one's, or have been set back. The
/// lease becomes neither shorter nor longer by that.
#[tokio::test]
async fn a_lease_outlives_a_clock_that_jumps_over_a_restart() {
    for (granted_at, started_at) in [(0, 600_000), (600_000, 0)] {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::default());
        let start = async |at| {
            clock.0.store(at, Ordering::Relaxed);
            let (store, clock) =
                (Arc::<MemoryStore>::clone(&store), Arc::<ManualClock>::clone(&clock));
            let recorded = Arc::new(RecordedEffects::default());
            Engine::start(store, clock, Settings::new("tc"), recorded).await.unwrap()
        };
        let first = start(granted_at).await;
        let granted = first.handle.call(acquire(1)).await.unwrap();
        assert!(matches!(granted, Reply::LockGranted { .. }), "{granted:?}");
        first.handle.stop();
        first.ended.await.unwrap().unwrap();
        for after in [0, 29_999, 30_000] {
            let next = start(started_at).await;
            clock.0.store(started_at + after, Ordering::Relaxed);
            let answer = next.handle.call(acquire_now(2)).await.unwrap();
            let is_granted = matches!(answer, Reply::LockGranted { .. });
            assert_eq!(is_granted, after == 30_000, "after {after}: {answer:?}");
            next.handle.stop();
            next.ended.await.unwrap().unwrap();
        }
    }
}

/// Fences of steps, prepared branches and resources behind a lock remember earlier numbers.
#[tokio::test]
async fn a_coordinator_that_lost_its_store_reuses_no_number() {
    let clock = Arc::new(ManualClock::default());
    let start = async |at_ms| {
        clock.0.store(at_ms, Ordering::Relaxed);
        let (store, recorded) =
            (Arc::new(MemoryStore::new()), Arc::new(RecordedEffects::default()));
        let clock = Arc::<ManualClock>::clone(&clock);
        Engine::start(store, clock, Settings::new("tc"), recorded).await.unwrap()
    };
    let mut last = None;
    // In the same minute, and in the next one.
    for at_ms in [1_800_000_000_000, 1_800_000_000_001, 1_800_000_060_000] {
        let engine = start(at_ms).await;
        let Reply::LockGranted { fence, .. } = engine.handle.call(acquire(1)).await.unwrap() else {
            panic!("the lock is free")
        };
        let drawn = (begin(&engine.handle).await, fence);
        let is_later = last.is_none_or(|(xid, fence)| drawn.0 > xid && drawn.1 > fence);
        assert!(is_later, "{drawn:?} after {last:?}");
        last = Some(drawn);
        engine.handle.stop();
        engine.ended.await.unwrap().unwrap();
    }
}

/// A store that forgets everything, and gains the lead at a given time.
#[derive(Debug)]
struct SlowStore {
    memory: MemoryStore,
    clock: Arc<ManualClock>,
    leads_at_ms: u64,
}

impl Store for SlowStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.clock.0.store(self.leads_at_ms, Ordering::Relaxed);
        self.memory.lead(at_least)
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.commit(epoch, batch)
    }
}

/// Regression: numbers were drawn twice. The epoch was that of one minute, the counter that of the
/// next.
#[tokio::test]
async fn a_minute_that_ends_while_leading_reuses_no_number() {
    let clock = Arc::new(ManualClock::default());
    let minute = 1_800_000_000_000;
    let mut last = None;
    for (starts, leads) in [(30_000, 30_000), (59_990, 60_010)] {
        clock.0.store(minute + starts, Ordering::Relaxed);
        let (memory, clock) = (MemoryStore::new(), Arc::<ManualClock>::clone(&clock));
        let held = Arc::<ManualClock>::clone(&clock);
        let store = SlowStore { memory, clock: held, leads_at_ms: minute + leads };
        let recorded = Arc::new(RecordedEffects::default());
        let settings = Settings::new("tc");
        let engine = Engine::start(Arc::new(store), clock, settings, recorded).await.unwrap();
        let drawn = begin(&engine.handle).await;
        assert!(last.is_none_or(|last| drawn > last), "{drawn:?} after {last:?}");
        last = Some(drawn);
        engine.handle.stop();
        engine.ended.await.unwrap().unwrap();
    }
}

/// A crash loses only the knowledge that a branch is finished, which is found out again. So it is
/// written with the next batch, and no sync of its own delays other requests.
#[tokio::test]
async fn one_way_requests_are_written_with_the_next_batch() {
    let (store, mut held) = HeldStore::new();
    let clock = Arc::new(ManualClock::default());
    let phase_two = Arc::new(RecordedEffects::default());
    let settings = Settings::new("tc");
    let engine = Engine::start(store, clock, settings, phase_two).await.unwrap();
    let (first, second) = (begin(&engine.handle).await, begin(&engine.handle).await);
    let ask = |command| tokio::spawn(ask(engine.handle.clone(), command));
    for command in [register(first, 1), commit(first)] {
        let asked = ask(command);
        held.recv().await.unwrap().verdict.send(Ok(())).unwrap();
        asked.await.unwrap().unwrap();
    }
    engine.handle.notify(vec![finished(first)]).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(held.try_recv().is_err(), "no request waits for it");
    }
    let asked = ask(register(second, 2));
    let batch = held.recv().await.unwrap();
    assert_eq!(batch.changes.len(), 4, "of both globals: {:?}", batch.changes);
    batch.verdict.send(Ok(())).unwrap();
    asked.await.unwrap().unwrap();
}

/// Even if no further request comes.
#[tokio::test]
async fn one_way_requests_are_written_after_a_while() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    for command in [register(xid, 1), commit(xid)] {
        let asked = tokio::spawn(ask(engine.handle.clone(), command));
        held.recv().await.unwrap().verdict.send(Ok(())).unwrap();
        asked.await.unwrap().unwrap();
    }
    engine.handle.notify(vec![finished(xid)]).await.unwrap();
    let batch = held.recv().await.unwrap();
    assert_eq!(batch.changes.len(), 2, "the global and its branch: {:?}", batch.changes);
    batch.verdict.send(Ok(())).unwrap();
}

/// Reports phase two of the first branch as done.
fn finished(xid: Xid) -> Command {
    let (branch, decision) = (BranchId(1), Decision::Commit);
    Command::FinishPhaseTwo { xid, branch, decision, outcome: PhaseTwoOutcome::Done }
}

async fn ask(engine: EngineHandle, command: Command) -> EngineResult {
    engine.call(command).await
}

#[tokio::test]
async fn requests_during_a_write_become_one_batch() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let collected = Arc::new(CollectedReplies::default());
    let mailbox: Arc<dyn ReplySink> = Arc::<CollectedReplies>::clone(&collected);
    let submit = |branch| {
        let request = (engine.handle.next_correlation(), register(xid, branch));
        engine.handle.submit(&mailbox, vec![request]);
    };
    submit(1);
    let first = held.recv().await.unwrap();
    (2..=100).for_each(submit);
    first.verdict.send(Ok(())).unwrap();
    collected.flushed.notified().await;
    assert_eq!(collected.replies.lock().unwrap().len(), 1);

    let second = held.recv().await.unwrap();
    // The global's record is put by the first registration only.
    assert_eq!(second.changes.len(), 99);
    second.verdict.send(Ok(())).unwrap();
    collected.flushed.notified().await;
    assert_eq!(collected.replies.lock().unwrap().len(), 100);
    assert_eq!(*collected.flushes.lock().unwrap(), 2);
}

#[tokio::test]
async fn a_batch_holds_the_last_change_of_a_key_only() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let collected = Arc::new(CollectedReplies::default());
    let mailbox: Arc<dyn ReplySink> = Arc::<CollectedReplies>::clone(&collected);
    let requests = vec![
        (engine.handle.next_correlation(), register(xid, 1)),
        (engine.handle.next_correlation(), commit(xid)),
    ];
    engine.handle.submit(&mailbox, requests);
    let batch = held.recv().await.unwrap();
    let globals = batch.changes.iter().filter(|c| matches!(c, Change::Put(Record::Global(_))));
    assert_eq!(globals.count(), 1, "{:?}", batch.changes);
    batch.verdict.send(Ok(())).unwrap();
}

#[tokio::test]
async fn a_failed_write_ends_the_engine_without_answers() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let registering = tokio::spawn({
        let engine = engine.handle.clone();
        async move { engine.call(register(xid, 1)).await }
    });
    let batch = held.recv().await.unwrap();
    let source = std::io::Error::other("no space left on device");
    let failure = StoreError::Write { directory: "data".into(), source };
    batch.verdict.send(Err(failure)).unwrap();
    assert_eq!(registering.await.unwrap(), Err(EngineError::NotLeading));
    let failure = engine.ended.await.unwrap().unwrap_err();
    assert_eq!(failure.code(), "HF-TC-STORE-WRITE");
    assert_eq!(*engine.leadership.borrow(), Leadership::NotLeading);
    assert_eq!(engine.handle.call(Command::GetStatus { xid }).await, Err(EngineError::NotLeading));
    assert_eq!(engine.handle.view(|_| ()).await, Err(EngineError::NotLeading));
}

/// A batch is being written before the answers of the one before it are sent.
#[tokio::test]
async fn a_failed_batch_keeps_the_answers_of_the_one_before() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let registering = |branch| {
        let engine = engine.handle.clone();
        tokio::spawn(async move { engine.call(register(xid, branch)).await })
    };
    let first = registering(1);
    let batch = held.recv().await.unwrap();
    let second = registering(2);
    batch.verdict.send(Ok(())).unwrap();
    let next = held.recv().await.unwrap();
    next.verdict.send(Err(StoreError::LostLeadership)).unwrap();
    assert!(matches!(first.await.unwrap(), Ok(Reply::Registered { .. })));
    assert_eq!(second.await.unwrap(), Err(EngineError::NotLeading));
}

#[tokio::test]
async fn lost_leadership_reloads_the_state_from_the_records() {
    let (store, mut held) = HeldStore::new();
    let (engine, recorded) = start(Arc::<HeldStore>::clone(&store), Settings::new("tc")).await;
    let first = *engine.leadership.borrow();
    let xid = begin(&engine.handle).await;
    let registering = tokio::spawn({
        let engine = engine.handle.clone();
        async move { engine.call(register(xid, 1)).await }
    });
    let batch = held.recv().await.unwrap();
    batch.verdict.send(Err(StoreError::LostLeadership)).unwrap();
    assert_eq!(registering.await.unwrap(), Err(EngineError::NotLeading));
    recorded.cleared.notified().await;
    // Neither the global nor its branch had become durable.
    let status = engine.handle.call(Command::GetStatus { xid }).await;
    assert_eq!(status, Ok(Reply::Status(GlobalStatus::Unknown)));
    assert_ne!(*engine.leadership.borrow(), first);
}

#[tokio::test]
async fn a_new_leader_owes_what_the_old_one_decided() {
    let store = Arc::new(MemoryStore::new());
    let (engine, _) = start(Arc::<MemoryStore>::clone(&store), Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    engine.handle.call(register(xid, 1)).await.unwrap();
    engine.handle.call(commit(xid)).await.unwrap();
    engine.handle.stop();
    engine.ended.await.unwrap().unwrap();

    let (engine, recorded) = start(store, Settings::new("tc")).await;
    engine.handle.view(|_| ()).await.unwrap();
    let effects = recorded.effects.lock().unwrap();
    let [Effect::PhaseTwo(call)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((call.xid, call.decision), (xid, Decision::Commit));
}

#[tokio::test]
async fn a_full_queue_and_a_stopped_engine_refuse() {
    let (store, mut held) = HeldStore::new();
    let settings = Settings { queue_max: 2, batch_max: 1, ..Settings::new("tc") };
    let (engine, _) = start(store, settings).await;
    let xid = begin(&engine.handle).await;
    let collected = Arc::new(CollectedReplies::default());
    let mailbox: Arc<dyn ReplySink> = Arc::<CollectedReplies>::clone(&collected);
    let requests = (1..=10).map(|branch| (engine.handle.next_correlation(), register(xid, branch)));
    engine.handle.submit(&mailbox, requests.collect());
    let busy = Err(EngineError::Busy);
    assert_eq!(collected.replies.lock().unwrap().iter().filter(|reply| reply.1 == busy).count(), 8);

    held.recv().await.unwrap().verdict.send(Ok(())).unwrap();
    engine.handle.stop();
    assert_eq!(engine.handle.call(begin_request()).await, Err(EngineError::Stopping));
    // The accepted requests are completed.
    held.recv().await.unwrap().verdict.send(Ok(())).unwrap();
    engine.ended.await.unwrap().unwrap();
    let registered =
        |reply: &&(Correlation, EngineResult)| matches!(reply.1, Ok(Reply::Registered { .. }));
    assert_eq!(collected.replies.lock().unwrap().iter().filter(registered).count(), 2);
}

#[tokio::test]
async fn a_dropped_call_gives_up_its_place_in_the_queue() {
    let (engine, _) = start(Arc::new(MemoryStore::new()), Settings::new("tc")).await;
    let (holder, waiter) = (begin(&engine.handle).await, begin(&engine.handle).await);
    engine.handle.call(register(holder, 1)).await.unwrap();
    let mut waiting = Box::pin(engine.handle.call(register(waiter, 1)));
    let waiters = || engine.handle.view(|coordinator| coordinator.counts().waiters);
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(waiters().await, Ok(1));
    drop(waiting);
    assert_eq!(waiters().await, Ok(0));
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Expiry must not wait for a moment without requests, which under load never comes.
#[tokio::test]
async fn time_passes_while_requests_keep_arriving() {
    let clock = Arc::new(ManualClock::default());
    let settings = Settings { batch_max: 1, ..Settings::new("tc") };
    let phase_two = Arc::new(RecordedEffects::default());
    let store = Arc::new(MemoryStore::new());
    let engine_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let engine = Engine::start(store, engine_clock, settings, phase_two).await.unwrap();
    let command =
        Command::Begin { application: "a".into(), name: "b".into(), timeout_ms: Some(1_000_000) };
    let Ok(Reply::Begun { xid, .. }) = engine.handle.call(command).await else { panic!() };
    let collected = Arc::new(CollectedReplies::default());
    let mailbox: Arc<dyn ReplySink> = Arc::<CollectedReplies>::clone(&collected);
    let ask = || (engine.handle.next_correlation(), Command::GetStatus { xid });
    let requests: Vec<_> = (0..100).map(|_| ask()).collect();
    let last = requests[99].0;
    clock.0.store(2_000_000, Ordering::Relaxed);
    engine.handle.submit(&mailbox, requests);
    engine.handle.view(|_| ()).await.unwrap();
    let replies = collected.replies.lock().unwrap();
    let expected = Ok(Reply::Status(GlobalStatus::RolledBack(RollbackReason::Timeout)));
    assert_eq!(*replies.last().unwrap(), (last, expected));
}

#[tokio::test]
async fn waiting_requests_are_answered_when_the_engine_is_dropped() {
    let (store, mut held) = HeldStore::new();
    let (engine, _) = start(store, Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let collected = Arc::new(CollectedReplies::default());
    let mailbox: Arc<dyn ReplySink> = Arc::<CollectedReplies>::clone(&collected);
    engine.handle.submit(&mailbox, vec![(engine.handle.next_correlation(), register(xid, 1))]);
    let _batch = held.recv().await.unwrap();
    engine.ended.abort();
    collected.flushed.notified().await;
    assert_eq!(collected.replies.lock().unwrap()[0].1, Err(EngineError::NotLeading));
    let status = engine.handle.call(Command::GetStatus { xid }).await;
    assert_eq!(status, Err(EngineError::NotLeading));
}

#[tokio::test]
async fn an_undecided_global_is_rolled_back_when_its_time_is_up() {
    let (engine, _) = start(Arc::new(MemoryStore::new()), Settings::new("tc")).await;
    let timeout_ms = Some(1);
    let command = Command::Begin { application: "a".into(), name: "b".into(), timeout_ms };
    let Ok(Reply::Begun { xid, .. }) = engine.handle.call(command).await else { panic!() };
    while engine.handle.view(move |coordinator| coordinator.status(xid)).await.unwrap()
        == GlobalStatus::Active
    {
        tokio::task::yield_now().await;
    }
}

/// Regression: clients were not served for as long as a hundred searches took.
#[tokio::test]
async fn scans_run_one_at_a_time_behind_clients_requests() {
    let clock = Arc::new(ManualClock::default());
    let engine_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let (store, phase_two) = (Arc::new(MemoryStore::new()), Arc::new(RecordedEffects::default()));
    let engine = Engine::start(store, engine_clock, Settings::new("tc"), phase_two).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = |number| {
        let seen = Arc::clone(&seen);
        let handle = engine.handle.clone();
        Box::pin(async move {
            handle.scan(move |_| seen.lock().unwrap().push(number)).await.unwrap();
        })
    };
    let mut scans: Vec<_> = (0..100).map(look).collect();
    scans.iter_mut().for_each(|scan| assert!(scan.as_mut().now_or_never().is_none()));
    // While the clock does not advance, no second scan runs.
    for _ in 0..200 {
        begin(&engine.handle).await;
    }
    assert_eq!(*seen.lock().unwrap(), [0]);
    for (number, scan) in scans.iter_mut().enumerate().skip(1) {
        clock.0.fetch_add(1, Ordering::Relaxed);
        scan.await;
        begin(&engine.handle).await;
        assert_eq!(*seen.lock().unwrap(), (0..=number).collect::<Vec<_>>());
    }
}
