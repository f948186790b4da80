//! Time: leases and numbers over restarts and jumps of the clock, and deadlines under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use handfast_core::{
    Change, Command, Epoch, GlobalStatus, Labels, LoanTerms, NewLease, Record, Reply,
    RollbackReason,
};
use handfast_server::clock::Clock;
use handfast_server::engine::{Engine, ReplySink, Settings};
use handfast_server::store::{MemoryStore, Store, StoreError};
use handfast_test_services::until;

use super::{CollectedReplies, ManualClock, RecordedEffects, acquire, begin, start, wanted};

/// An acquisition that does not wait.
fn acquire_now(number: u64) -> Command {
    Command::AcquireLock(Box::new(NewLease { wait_ms: 0, ..wanted(number) }))
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

/// Expiry must not wait for a moment without requests, which under load never comes.
#[tokio::test]
async fn time_passes_while_requests_keep_arriving() {
    let clock = Arc::new(ManualClock::default());
    let settings = Settings { batch_max: 1, ..Settings::new("tc") };
    let phase_two = Arc::new(RecordedEffects::default());
    let store = Arc::new(MemoryStore::new());
    let engine_clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let engine = Engine::start(store, engine_clock, settings, phase_two).await.unwrap();
    let command = Command::Begin {
        application: "a".into(),
        name: "b".into(),
        timeout_ms: Some(1_000_000),
        labels: Labels::NONE,
        key: None,
        loan: LoanTerms::default(),
    };
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
async fn an_undecided_global_is_rolled_back_when_its_time_is_up() {
    let (engine, _) = start(Arc::new(MemoryStore::new()), Settings::new("tc")).await;
    let timeout_ms = Some(1);
    let command = Command::Begin {
        application: "a".into(),
        name: "b".into(),
        timeout_ms,
        labels: Labels::NONE,
        key: None,
        loan: LoanTerms::default(),
    };
    let Ok(Reply::Begun { xid, .. }) = engine.handle.call(command).await else { panic!() };
    until("it is rolled back", async || {
        let status = engine.handle.view(move |coordinator| coordinator.status(xid)).await;
        status.unwrap() != GlobalStatus::Active
    })
    .await;
}
