//! One holder at a time, and tokens that grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{Guard, LockError, ReleaseOutcome};
use handfast_test_services::until_some;

use crate::setup::{TestBackend, fresh};

pub(crate) async fn a_free_lock_is_granted(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let guard = locks.try_lock(&name).await.unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let guard = locks.lock(&name).await.unwrap();
    assert_eq!(guard.name().as_str(), name);
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}

pub(crate) async fn a_held_lock_is_refused_and_names_its_holder(setup: &TestBackend) {
    let name = fresh();
    let holder = setup.settings().label("the holder").start().unwrap();
    let guard = holder.lock(&name).await.unwrap();
    for locks in [setup.locks(), holder] {
        let Err(LockError::Busy { holder: Some(found), .. }) = locks.try_lock(&name).await else {
            panic!("two holders, or none");
        };
        assert_eq!((found.id, &*found.label), (guard.id(), "the holder"));
    }
}

pub(crate) async fn names_are_compared_exactly(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let mut guards = Vec::new();
    for variant in [name.clone(), name.to_uppercase(), format!("{name} "), format!("{name}é")] {
        guards.push(locks.try_lock(&variant).await.unwrap());
    }
    assert!(guards.iter().all(Guard::is_held));
}

pub(crate) async fn locks_of_different_names_do_not_meet(setup: &TestBackend) {
    let locks = setup.locks();
    let names: Vec<String> = (0..12).map(|_| fresh()).collect();
    let guards = join_all(names.iter().map(|name| locks.lock(name))).await;
    assert!(guards.into_iter().all(|guard| guard.unwrap().is_held()));
}

pub(crate) async fn tokens_grow(setup: &TestBackend) {
    let (clients, name) = ([setup.locks(), setup.locks()], fresh());
    let mut last = None;
    for locks in clients.iter().cycle().take(20) {
        let guard = locks.lock(&name).await.unwrap();
        assert!(Some(guard.fencing_token()) > last, "{:?} after {last:?}", guard.fencing_token());
        last = Some(guard.fencing_token());
        drop(guard);
    }
}

pub(crate) async fn tokens_grow_over_the_end_of_a_lease(setup: &TestBackend) {
    let name = fresh();
    let lock_ref = crate::setup::lock_ref(&name);
    let mut request = crate::setup::acquire_request(&lock_ref, handfast_locks::QueueMode::NoWait);
    request.lease = Duration::from_millis(300);
    let handfast_locks::AcquireResponse::Granted { fencing_token, .. } =
        setup.backend.acquire(&request).await.unwrap()
    else {
        panic!("a free lock was refused");
    };
    let guard = setup.locks().lock(&name).await.unwrap();
    assert!(guard.fencing_token() > fencing_token);
}

pub(crate) async fn the_first_acquisition_has_one_winner(setup: &TestBackend) {
    let locks = setup.locks();
    for _ in 0..5 {
        // A try that a busy machine answers too late may have been the winner.
        let tries = until_some("all tries are answered", async || {
            let name = fresh();
            let tries = join_all((0..16).map(|_| locks.try_lock(&name))).await;
            assert!(tries.iter().filter(|tried| tried.is_ok()).count() <= 1, "{tries:?}");
            let are_answered = !tries.iter().any(is_late);
            are_answered.then_some(tries)
        })
        .await;
        let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for refused in lost {
            assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
        }
    }
}

fn is_late(tried: &Result<Guard, LockError>) -> bool {
    matches!(tried, Err(LockError::Unavailable { .. }))
}

/// Increments with a read and a write, with room between them, under the lock.
pub(crate) async fn a_counter_is_exact(setup: &TestBackend) {
    let (name, counter) = (fresh(), Arc::new(AtomicI64::new(0)));
    let clients = [setup.locks(), setup.locks(), setup.locks()];
    let work = (0..6).map(|worker| {
        let (locks, name) = (clients[worker % clients.len()].clone(), name.clone());
        let counter = Arc::clone(&counter);
        tokio::spawn(async move {
            for _ in 0..8 {
                let guard = locks.lock(&name).await.unwrap();
                let read = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                counter.store(read + 1, Ordering::SeqCst);
                assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
            }
        })
    });
    for worker in join_all(work).await {
        worker.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 48);
}
