//! DURABLE-FIRST: which replies wait for a batch, and which need not.

use futures::future::FutureExt;
use handfast_core::{Command, Effect, GlobalStatus, Reply};
use handfast_server::engine::Settings;

use super::{HeldStore, acquire, ask, begin, commit, register, start, token};

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

fn release(number: u64) -> Command {
    Command::ReleaseLock { name: "orders/42".into(), token: token(number), refuses_late: false }
}
