//! Group commit: which requests share a batch, and how many may wait for one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures::future::FutureExt;
use handfast_core::{
    BranchId, Change, Command, Correlation, Decision, PhaseTwoOutcome, Record, Reply, Xid,
};
use handfast_server::clock::Clock;
use handfast_server::engine::{Engine, EngineError, EngineResult, ReplySink, Settings};
use handfast_server::store::MemoryStore;

use super::{
    CollectedReplies, HeldStore, ManualClock, RecordedEffects, ask, begin, begin_request, commit,
    register, start,
};

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
