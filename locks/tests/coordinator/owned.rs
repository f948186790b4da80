//! Locks that globals own: they end with their globals, and stand in their wait-for graph.

use handfast_locks::LockError;

use crate::tc::Tc;
use crate::{connect, over};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_ends_with_the_commit_of_its_global_and_not_before() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let stranger = over(handfast.locks()).start().unwrap();
    let global = handfast.transaction("edit").begin().await.unwrap();
    let own = over(handfast.locks().owned_by(global.xid())).start().unwrap();
    let guard = own.lock("orders/42").await.unwrap();
    drop(guard);
    own.settle().await.unwrap();
    assert!(matches!(stranger.try_lock("orders/42").await, Err(LockError::Busy { .. })));
    global.commit().await.unwrap();
    assert!(stranger.try_lock("orders/42").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_ends_with_the_rollback_of_its_global() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let stranger = over(handfast.locks()).start().unwrap();
    let global = handfast.transaction("edit").begin().await.unwrap();
    let own = over(handfast.locks().owned_by(global.xid())).start().unwrap();
    let guard = own.lock("orders/42").await.unwrap();
    global.rollback("not wanted").await.unwrap();
    let next = stranger.lock("orders/42").await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // A global that is over gets no more locks.
    let refused = own.try_lock("orders/43").await;
    assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_globals_that_wait_for_each_other_one_is_refused() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let [first, second] = [
        handfast.transaction("first").begin().await.unwrap(),
        handfast.transaction("second").begin().await.unwrap(),
    ];
    let one = over(handfast.locks().owned_by(first.xid())).start().unwrap();
    let two = over(handfast.locks().owned_by(second.xid())).start().unwrap();
    let _first_holds = one.lock("a").await.unwrap();
    let _second_holds = two.lock("b").await.unwrap();
    let waiting = tokio::spawn(async move { one.lock("b").await });
    tc.queue_of("b", 1).await;
    let refused = two.lock("a").await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().starts_with("deadlock: "), "{source}");
    second.rollback("in the way").await.unwrap();
    assert!(waiting.await.unwrap().is_ok());
    first.commit().await.unwrap();
}
