//! The queue: order, wake-ups, and those who leave it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{Answer, Guard, Leave, LockError, Locks, Outcome, Place};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::faults::Faulty;
use crate::stage::{Stage, ask, fresh, hold, over};

pub(crate) async fn a_waiter_gets_the_lock_that_is_let_go(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    let waiting = waits(Faulty::over(&stage.backend), &name).await;
    drop(guard);
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn waiters_are_served_in_order(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    let (served, mut order) = mpsc::unbounded_channel();
    for number in 0..4 {
        let (waiting, served) = (waits(Faulty::over(&stage.backend), &name).await, served.clone());
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

/// More than a backend has connections.
pub(crate) async fn many_clients_share_a_backend(stage: &Stage) {
    let name = fresh();
    let clients: Vec<Locks> = (0..40).map(|_| stage.locks()).collect();
    let turns = clients.iter().map(async |locks| {
        let guard = locks.lock(&name).await.unwrap();
        guard.release().await.unwrap()
    });
    for outcome in join_all(turns).await {
        assert_eq!(outcome, Outcome::Released);
    }
}

pub(crate) async fn a_newcomer_does_not_overtake(stage: &Stage) {
    let name = fresh();
    let [holder, waiter, newcomer] = [hold(&name), hold(&name), hold(&name)];
    granted(stage, &ask(&holder, Place::None)).await;
    let joined = stage.backend.ask(&ask(&waiter, Place::Join)).await.unwrap();
    assert!(matches!(joined, Answer::Busy { holder: Some(_), .. }));
    let leave = Leave { hold: holder, is_doubtful: false, is_alone: true };
    stage.backend.leave(&leave).await.unwrap();
    let refused = stage.backend.ask(&ask(&newcomer, Place::None)).await.unwrap();
    // It is the waiter's, if not yet in name.
    let Answer::Busy { holder, .. } = refused else { panic!("{refused:?}") };
    assert!(holder.is_none_or(|holder| holder.token == waiter.token));
    granted(stage, &ask(&waiter, Place::Keep)).await;
}

pub(crate) async fn patience_ends_and_leaves_nothing(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let guard = stage.locks().lock(&name).await.unwrap();
    let refused = locks.lock_timeout(&name, Duration::from_secs(3)).await;
    let Err(LockError::TimedOut { holder: Some(holder), .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(holder.token, guard.token());
    locks.settle().await.unwrap();
    drop(guard);
    // Nobody is in front.
    eventually_free(&locks, &name).await;
}

pub(crate) async fn a_lost_wake_up_costs_little(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    let deaf = Faulty { is_deaf: true, ..Faulty::over(&stage.backend) };
    let waiting = waits(deaf, &name).await;
    drop(guard);
    // Long before any lease ends.
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn a_dead_waiter_is_passed_over(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    stage.backend.ask(&ask(&hold(&name), Place::Join)).await.unwrap();
    let waiting = waits(Faulty::over(&stage.backend), &name).await;
    drop(guard);
    assert!(waiting.await.unwrap().is_held());
}

pub(crate) async fn whoever_gives_up_passes_his_turn_on(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    let first = waits(Faulty::over(&stage.backend), &name).await;
    let second = waits(Faulty::over(&stage.backend), &name).await;
    first.abort();
    drop(guard);
    assert!(second.await.unwrap().is_held());
}

/// Somebody who waits, and is in the queue: he has been told that the lock is held.
async fn waits(backend: Faulty, name: &str) -> JoinHandle<Guard> {
    let (backend, name) = (Arc::new(backend), name.to_owned());
    let locks = over(Arc::clone(&backend) as _).start().unwrap();
    let waiting = tokio::spawn(async move { locks.lock(&name).await.unwrap() });
    while backend.answers.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waiting
}

async fn granted(stage: &Stage, ask: &handfast_locks::Ask) {
    let answer = stage.backend.ask(ask).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
}

/// Waits until a try succeeds: what was dropped is on its way.
pub(crate) async fn eventually_free(locks: &Locks, name: &str) {
    loop {
        match locks.try_lock(name).await {
            Ok(_guard) => return,
            Err(LockError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{error}"),
        }
    }
}
