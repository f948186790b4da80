//! Several locks at once, or none.

use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{Holder, LockError, ReleaseOutcome};

use crate::owner::give_away;
use crate::setup::{TestBackend, fresh};
use crate::waiting::eventually_free;

pub(crate) async fn several_locks_are_taken_or_none(setup: &TestBackend) {
    let (locks, names) = (setup.locks(), [fresh(), fresh(), fresh()]);
    let [a, b, c] = names.each_ref().map(String::as_str);
    let guards = locks.lock_all(&[c, a, b, a]).await.unwrap();
    assert_eq!(guards.iter().count(), 3);
    for name in [a, b, c] {
        assert!(guards.get(name).unwrap().is_held());
        assert!(matches!(setup.locks().try_lock(name).await, Err(LockError::Busy { .. })));
    }
    assert_eq!(guards.release().await.unwrap(), [const { ReleaseOutcome::Released }; 3]);
    for held in [a, b, c] {
        let guard = locks.lock(held).await.unwrap();
        let refused = locks.try_lock_all(&[a, b, c]).await;
        let Err(LockError::Busy { name, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(name.as_str(), held);
        let limit = Duration::from_millis(100);
        let refused = locks.lock_all_timeout(&[a, b, c], limit).await;
        assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
        locks.settle().await.unwrap();
        for free in [a, b, c].into_iter().filter(|name| *name != held) {
            let free = setup.locks().try_lock(free).await.unwrap();
            assert_eq!(free.release().await.unwrap(), ReleaseOutcome::Released);
        }
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

/// Two callers name the same locks in opposite order.
pub(crate) async fn waits_for_several_locks_form_no_circle(setup: &TestBackend) {
    let names = [fresh(), fresh()];
    let work = [[0, 1], [1, 0]].map(|order| {
        let (locks, names) = (setup.locks(), order.map(|at| names[at].clone()));
        tokio::spawn(async move {
            for _ in 0..5 {
                let guards = locks.lock_all(&[&names[0], &names[1]]).await.unwrap();
                tokio::task::yield_now().await;
                let _outcomes = guards.release().await.unwrap();
            }
        })
    });
    for worker in join_all(work).await {
        worker.unwrap();
    }
}

pub(crate) async fn a_cancelled_wait_for_several_leaves_nothing(setup: &TestBackend) {
    let (locks, mut names) = (setup.settings().label("all").start().unwrap(), [fresh(), fresh()]);
    names.sort();
    let guard = setup.locks().lock(&names[1]).await.unwrap();
    let waiting = {
        let (locks, names) = (locks.clone(), names.clone());
        tokio::spawn(async move { locks.lock_all(&[&names[0], &names[1]]).await.map(drop) })
    };
    held_by(setup, &names[0], "all").await;
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    drop(guard);
    for name in names {
        eventually_free(&locks, &name).await;
    }
}

/// The first lock is lost while the second is waited for: all are released.
pub(crate) async fn a_lock_that_is_lost_ends_the_wait_for_others(setup: &TestBackend) {
    // The client learns of the loss at the first renewal. The lease is long enough for the grant to
    // be seen before, however busy the machine is.
    let settings = setup.settings().lease(Duration::from_secs(15)).label("all");
    let locks = settings.start().unwrap();
    let mut names = [fresh(), fresh()];
    names.sort();
    let blocker = setup.locks().lock(&names[1]).await.unwrap();
    let mut waiting = {
        let names = names.clone();
        tokio::spawn(async move { locks.lock_all(&[&names[0], &names[1]]).await.map(drop) })
    };
    let holder = tokio::select! {
        holder = held_by(setup, &names[0], "all") => holder,
        ended = &mut waiting => panic!("{ended:?} before it was seen to hold the first"),
    };
    // Others may see a holder before it has heard of its own grant.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let name = handfast_locks::LockName::new(&*names[0]).unwrap();
    let lock_ref = handfast_locks::LockRef { name, id: holder.id };
    let request = handfast_locks::ReleaseRequest {
        lock_ref,
        refuse_late_requests: false,
        is_uncontended: true,
    };
    setup.backend.release(&request).await.unwrap();
    let ended = waiting.await.unwrap();
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    give_away(setup, &blocker).await;
}

/// Waits until a client of this label holds a lock.
async fn held_by(setup: &TestBackend, name: &str, label: &str) -> Holder {
    let looking = setup.locks();
    loop {
        match looking.try_lock(name).await {
            Err(LockError::Busy { holder: Some(holder), .. }) if holder.label == label => {
                return holder;
            }
            // This may be a lock that this very try took and is about to release.
            Ok(_) | Err(LockError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
