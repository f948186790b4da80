//! Leases: renewed while held, ended when not, and never believed in for too long.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_locks::{Answer, LockError, Lost, Moment, Outcome, Place};

use crate::faults::Faulty;
use crate::owner::{give_away, take};
use crate::stage::{LEASE, Stage, ask, fresh, hold, over};

/// Ends within a test.
pub(crate) const SHORT: Duration = Duration::from_millis(400);
/// Is renewed within a test, also on a loaded machine.
const RENEWED: Duration = Duration::from_secs(3);

pub(crate) async fn a_lock_is_renewed(stage: &Stage) {
    let locks = stage.settings().lease(RENEWED).start().unwrap();
    let name = fresh();
    let guard = locks.lock(&name).await.unwrap();
    let first = guard.deadline();
    let over = first + RENEWED;
    while Moment::now() < over {
        assert!(stage.locks().try_lock(&name).await.is_err());
        tokio::time::sleep(RENEWED / 10).await;
    }
    assert!(guard.is_held() && guard.deadline() > over);
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
}

pub(crate) async fn a_lease_ends_without_renewal(stage: &Stage) {
    let name = fresh();
    let mut ask = ask(&hold(&name), Place::None);
    ask.lease = SHORT;
    assert!(matches!(stage.backend.ask(&ask).await.unwrap(), Answer::Granted { .. }));
    // Nobody lets go: it is the lease that ends.
    assert!(stage.locks().lock(&name).await.unwrap().is_held());
}

pub(crate) async fn a_renewal_does_not_bring_back_what_was_lost(stage: &Stage) {
    let name = fresh();
    let (old, next) = (hold(&name), hold(&name));
    let mut short = ask(&old, Place::None);
    short.lease = SHORT;
    assert!(matches!(stage.backend.ask(&short).await.unwrap(), Answer::Granted { .. }));
    let renew = async || stage.backend.renew(std::slice::from_ref(&old), LEASE).await.unwrap();
    while !take(stage, &next).await {
        tokio::time::sleep(SHORT / 4).await;
    }
    assert_eq!(renew().await, [false]);
    let leave = handfast_locks::Leave { hold: next, is_doubtful: false, is_alone: true };
    stage.backend.leave(&leave).await.unwrap();
    // Free, and still not the old one's.
    assert_eq!(renew().await, [false]);
    assert!(take(stage, &hold(&name)).await);
}

pub(crate) async fn a_batch_is_renewed_one_by_one(stage: &Stage) {
    let held = [hold(&fresh()), hold(&fresh())];
    for hold in &held {
        assert!(take(stage, hold).await);
    }
    let [first, second] = held;
    let stranger = hold(first.name.as_str());
    let batch = [second, hold(&fresh()), stranger, first];
    let renewed = stage.backend.renew(&batch, LEASE).await.unwrap();
    assert_eq!(renewed, [true, false, false, true]);
}

pub(crate) async fn a_lock_is_lost_when_the_backend_is_cut_off(stage: &Stage) {
    let backend = Arc::new(Faulty::over(&stage.backend));
    let locks = over(Arc::clone(&backend) as _).lease(Duration::from_secs(1)).start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    backend.is_cut.store(true, Ordering::SeqCst);
    assert_eq!(guard.lost().await, Lost::Deadline);
    assert!(!guard.is_held() && guard.deadline() <= Moment::now());
    assert!(matches!(guard.check(), Err(LockError::Lost { .. })));
    // Nothing brings it back.
    backend.is_cut.store(false, Ordering::SeqCst);
    assert_eq!(guard.release().await.unwrap(), Outcome::WasLost);
}

pub(crate) async fn a_lock_that_was_given_away_is_lost(stage: &Stage) {
    let locks = stage.settings().lease(RENEWED).start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    give_away(stage, &guard).await;
    assert_eq!(guard.lost().await, Lost::Taken);
    assert!(!guard.is_held());
}

pub(crate) async fn a_lock_is_not_held_beyond_its_limit(stage: &Stage) {
    let settings = stage.settings().lease(RENEWED).hold_max(Duration::from_secs(4));
    let locks = settings.start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    assert_eq!(guard.lost().await, Lost::MaxHold);
}

pub(crate) async fn work_is_stopped_when_its_lock_is_lost(stage: &Stage) {
    let locks = stage.settings().lease(RENEWED).start().unwrap();
    let name = fresh();
    let ended = locks
        .run(&name, async |guard| {
            give_away(stage, guard).await;
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(ended, Err(LockError::Lost { why: Lost::Taken, .. })), "{ended:?}");
}

pub(crate) async fn work_is_done_under_the_lock(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let refused = locks.run(&name, async |guard| {
        assert!(guard.is_held());
        stage.locks().try_lock(&name).await.is_err()
    });
    assert!(refused.await.unwrap());
    locks.settle().await.unwrap();
    assert!(locks.try_lock(&name).await.is_ok());
}

pub(crate) async fn nothing_is_renewed_after_the_release(stage: &Stage) {
    let backend = Arc::new(Faulty::over(&stage.backend));
    let lease = Duration::from_secs(1);
    let locks = over(Arc::clone(&backend) as _).lease(lease).start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    while backend.renewals.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let outcome = guard.release().await.unwrap();
    assert!(matches!(outcome, Outcome::Released | Outcome::WasLost));
    let renewals = backend.renewals.load(Ordering::SeqCst);
    tokio::time::sleep(lease).await;
    assert_eq!(backend.renewals.load(Ordering::SeqCst), renewals);
}
