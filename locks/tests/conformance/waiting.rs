//! The queue: order, wake-ups, and waiters that leave.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    AcquireResponse, Guard, LockError, Locks, QueueMode, ReleaseOutcome, ReleaseRequest,
};
use handfast_test_services::{until, until_some};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::faults::Faulty;
use crate::setup::{TestBackend, acquire_request, fresh, lock_ref, over};

pub(crate) async fn a_waiter_gets_the_released_lock(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    let waiting = waits(Faulty::over(&setup.backend), &name).await;
    drop(guard);
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn waiters_are_served_in_order(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    let (served, mut order) = mpsc::unbounded_channel();
    for number in 0..4 {
        let (waiting, served) = (waits(Faulty::over(&setup.backend), &name).await, served.clone());
        tokio::spawn(async move {
            let guard = waiting.await.unwrap();
            served.send(number).unwrap();
            drop(guard);
        });
    }
    drop(guard);
    for number in 0..4 {
        assert_eq!(order.recv().await, Some(number));
    }
}

/// More clients than a backend has connections.
pub(crate) async fn many_clients_share_a_backend(setup: &TestBackend) {
    let name = fresh();
    let clients: Vec<Locks> = (0..40).map(|_| setup.locks()).collect();
    let turns = clients.iter().map(async |locks| {
        let guard = locks.lock(&name).await.unwrap();
        guard.release().await.unwrap()
    });
    for outcome in join_all(turns).await {
        assert_eq!(outcome, ReleaseOutcome::Released);
    }
}

pub(crate) async fn a_newcomer_does_not_overtake(setup: &TestBackend) {
    let name = fresh();
    let [holder, waiter, newcomer] = [lock_ref(&name), lock_ref(&name), lock_ref(&name)];
    granted(setup, &acquire_request(&holder, QueueMode::NoWait)).await;
    let joined = setup.backend.acquire(&acquire_request(&waiter, QueueMode::Join)).await.unwrap();
    assert!(matches!(joined, AcquireResponse::Busy { holder: Some(_), .. }), "{joined:?}");
    let request =
        ReleaseRequest { lock_ref: holder, refuse_late_requests: false, is_uncontended: true };
    setup.backend.release(&request).await.unwrap();
    let refused =
        setup.backend.acquire(&acquire_request(&newcomer, QueueMode::NoWait)).await.unwrap();
    // The lock is the waiter's turn, if not yet held by it.
    let AcquireResponse::Busy { holder, .. } = refused else { panic!("{refused:?}") };
    assert!(holder.is_none_or(|holder| holder.id == waiter.id));
    // The news that it is the waiter's turn may still be on its way to it.
    let keeps = acquire_request(&waiter, QueueMode::KeepPlace);
    until("the waiter has the lock", async || {
        let response = setup.backend.acquire(&keeps).await.unwrap();
        matches!(response, AcquireResponse::Granted { .. })
    })
    .await;
}

pub(crate) async fn a_wait_that_times_out_leaves_nothing(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let guard = setup.locks().lock(&name).await.unwrap();
    // A busy machine may answer the request only after the wait, and then no holder is known.
    let holder = until_some("the request is answered within the wait", async || {
        match locks.lock_timeout(&name, Duration::from_secs(3)).await {
            Err(LockError::TimedOut { holder, .. }) => holder,
            Err(LockError::Unavailable { .. }) => None,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(holder.await.id, guard.id());
    locks.settle().await.unwrap();
    drop(guard);
    // No waiter is ahead.
    eventually_free(&locks, &name).await;
}

pub(crate) async fn a_lost_wake_up_costs_little(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    let deaf = Faulty { is_deaf: true, ..Faulty::over(&setup.backend) };
    let waiting = waits(deaf, &name).await;
    drop(guard);
    // This comes long before any lease ends.
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn a_dead_waiter_is_passed_over(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    setup.backend.acquire(&acquire_request(&lock_ref(&name), QueueMode::Join)).await.unwrap();
    let waiting = waits(Faulty::over(&setup.backend), &name).await;
    drop(guard);
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn turn_of_a_cancelled_waiter_passes_on(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    let first = waits(Faulty::over(&setup.backend), &name).await;
    let second = waits(Faulty::over(&setup.backend), &name).await;
    first.abort();
    drop(guard);
    assert!(second.await.unwrap().is_held());
}

/// Starts a waiter, and returns when it is in the queue: it has been answered that the lock is
/// held.
async fn waits(backend: Faulty, name: &str) -> JoinHandle<Guard> {
    let (backend, name) = (Arc::new(backend), name.to_owned());
    let locks = over(Arc::clone(&backend) as _).start().unwrap();
    let waiting = tokio::spawn(async move { locks.lock(&name).await.unwrap() });
    backend.answered.subscribe().wait_for(|answered| !answered.is_empty()).await.unwrap();
    waiting
}

async fn granted(setup: &TestBackend, request: &handfast_locks::AcquireRequest) {
    let answer = setup.backend.acquire(request).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Granted { .. }), "{answer:?}");
}

/// Waits until a try succeeds: the release of a dropped guard is on its way. A caller that waited
/// for the lock instead would also pass over what a waiter has left behind.
pub(crate) async fn eventually_free(locks: &Locks, name: &str) {
    until("the lock is free", async || match locks.try_lock(name).await {
        Ok(_guard) => true,
        Err(LockError::Busy { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
}
