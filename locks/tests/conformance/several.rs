//! Several locks at once, or none.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{LockError, LockRef, ReleaseOutcome, ReleaseRequest};
use tokio::task::JoinHandle;

use crate::faults::Faulty;
use crate::owner::give_away;
use crate::setup::{LEASE, TestBackend, fresh, over};
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
    let (locks, names) = (setup.locks(), sorted());
    let guard = locks.lock(&names[1]).await.unwrap();
    let (_first, waiting) = holds_one_of_two(setup, &names, LEASE).await;
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    drop(guard);
    for name in names {
        eventually_free(&locks, &name).await;
    }
}

/// The first lock is lost while the second is waited for: all are released.
pub(crate) async fn a_lock_that_is_lost_ends_the_wait_for_others(setup: &TestBackend) {
    let names = sorted();
    let blocker = setup.locks().lock(&names[1]).await.unwrap();
    // The client learns of the loss at its next renewal. The lease is long enough not to end
    // before, however busy the machine is.
    let (first, waiting) = holds_one_of_two(setup, &names, Duration::from_secs(15)).await;
    let request =
        ReleaseRequest { lock_ref: first, refuse_late_requests: false, is_uncontended: true };
    setup.backend.release(&request).await.unwrap();
    let ended = waiting.await.unwrap();
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    give_away(setup, &blocker).await;
}

/// Returns two names in the order in which the locks are taken.
fn sorted() -> [String; 2] {
    let mut names = [fresh(), fresh()];
    names.sort();
    names
}

/// Starts a caller that waits for two locks, of which another client holds the second. Returns its
/// acquisition of the first when the request for the second has been answered: by then the caller
/// has heard of its own grant.
async fn holds_one_of_two(
    setup: &TestBackend,
    names: &[String; 2],
    lease: Duration,
) -> (LockRef, JoinHandle<Result<(), LockError>>) {
    let backend = Arc::new(Faulty::over(&setup.backend));
    let locks = over(Arc::clone(&backend) as _).lease(lease).start().unwrap();
    let [first, second] = names.clone();
    let mut waiting =
        tokio::spawn(async move { locks.lock_all(&[&first, &second]).await.map(drop) });
    let of = |name: &str, answered: &[LockRef]| {
        answered.iter().rfind(|lock_ref| lock_ref.name.as_str() == name).cloned()
    };
    let mut answers = backend.answered.subscribe();
    let first = tokio::select! {
        answered = answers.wait_for(|answered| of(&names[1], answered).is_some()) => {
            of(&names[0], &answered.unwrap()).unwrap()
        }
        ended = &mut waiting => panic!("{ended:?} before it waited for the second"),
    };
    (first, waiting)
}
