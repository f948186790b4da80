//! One holder at a time, and tokens that grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{LockError, Outcome};

use crate::stage::{Stage, fresh};

pub(crate) async fn a_free_lock_is_granted(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let guard = locks.try_lock(&name).await.unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    let guard = locks.lock(&name).await.unwrap();
    assert_eq!(guard.name().as_str(), name);
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
}

pub(crate) async fn a_held_lock_is_refused_and_names_its_holder(stage: &Stage) {
    let name = fresh();
    let holder = stage.settings().label("the holder").start().unwrap();
    let guard = holder.lock(&name).await.unwrap();
    for locks in [stage.locks(), holder] {
        let Err(LockError::Busy { holder: Some(found), .. }) = locks.try_lock(&name).await else {
            panic!("two holders, or none");
        };
        assert_eq!((found.token, &*found.label), (guard.token(), "the holder"));
    }
}

pub(crate) async fn names_are_compared_exactly(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let mut guards = Vec::new();
    for variant in [name.clone(), name.to_uppercase(), format!("{name} "), format!("{name}é")] {
        guards.push(locks.try_lock(&variant).await.unwrap());
    }
    assert!(guards.iter().all(handfast_locks::Guard::is_held));
}

pub(crate) async fn locks_of_different_names_do_not_meet(stage: &Stage) {
    let locks = stage.locks();
    let names: Vec<String> = (0..12).map(|_| fresh()).collect();
    let guards = join_all(names.iter().map(|name| locks.lock(name))).await;
    assert!(guards.into_iter().all(|guard| guard.unwrap().is_held()));
}

pub(crate) async fn fences_grow(stage: &Stage) {
    let (clients, name) = ([stage.locks(), stage.locks()], fresh());
    let mut last = None;
    for locks in clients.iter().cycle().take(20) {
        let guard = locks.lock(&name).await.unwrap();
        assert!(Some(guard.fence()) > last, "{:?} after {last:?}", guard.fence());
        last = Some(guard.fence());
        drop(guard);
    }
}

pub(crate) async fn fences_grow_over_the_end_of_a_lease(stage: &Stage) {
    let name = fresh();
    let hold = crate::stage::hold(&name);
    let mut ask = crate::stage::ask(&hold, handfast_locks::Place::None);
    ask.lease = Duration::from_millis(300);
    let handfast_locks::Answer::Granted { fence, .. } = stage.backend.ask(&ask).await.unwrap()
    else {
        panic!("a free lock was refused");
    };
    let guard = stage.locks().lock(&name).await.unwrap();
    assert!(guard.fence() > fence);
}

pub(crate) async fn the_first_acquisition_has_one_winner(stage: &Stage) {
    let locks = stage.locks();
    for _ in 0..5 {
        let name = fresh();
        let tries = join_all((0..16).map(|_| locks.try_lock(&name))).await;
        let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for refused in lost {
            assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
        }
    }
}

/// A read and a write with room between them, under the lock.
pub(crate) async fn a_counter_is_exact(stage: &Stage) {
    let (name, counter) = (fresh(), Arc::new(AtomicI64::new(0)));
    let clients = [stage.locks(), stage.locks(), stage.locks()];
    let work = (0..6).map(|worker| {
        let (locks, name) = (clients[worker % clients.len()].clone(), name.clone());
        let counter = Arc::clone(&counter);
        tokio::spawn(async move {
            for _ in 0..8 {
                let guard = locks.lock(&name).await.unwrap();
                let read = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                counter.store(read + 1, Ordering::SeqCst);
                assert_eq!(guard.release().await.unwrap(), Outcome::Released);
            }
        })
    });
    for worker in join_all(work).await {
        worker.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 48);
}
