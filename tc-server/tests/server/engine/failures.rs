//! Failures of the store, lost leadership, and the end of the engine.

use std::sync::Arc;

use handfast_core::{Command, Decision, Effect, GlobalStatus, Reply};
use handfast_server::engine::{EngineError, Leadership, ReplySink, Settings};
use handfast_server::store::{MemoryStore, StoreError};

use super::{CollectedReplies, HeldStore, begin, commit, register, start};

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
    assert_eq!(*engine.leadership.borrow(), Leadership::Ended);
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
    let (mut engine, recorded) = start(Arc::<HeldStore>::clone(&store), Settings::new("tc")).await;
    let first = engine.leadership.borrow().epoch();
    let xid = begin(&engine.handle).await;
    let registering = tokio::spawn({
        let engine = engine.handle.clone();
        async move { engine.call(register(xid, 1)).await }
    });
    let batch = held.recv().await.unwrap();
    batch.verdict.send(Err(StoreError::LostLeadership)).unwrap();
    assert_eq!(registering.await.unwrap(), Err(EngineError::NotLeading));
    recorded.cleared.notified().await;
    let leads_again =
        |leadership: &Leadership| leadership.epoch().is_some_and(|epoch| Some(epoch) != first);
    engine.leadership.wait_for(leads_again).await.unwrap();
    // Neither the global nor its branch had become durable.
    let status = engine.handle.call(Command::GetStatus { xid }).await;
    assert_eq!(status, Ok(Reply::Status(GlobalStatus::Unknown)));
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
