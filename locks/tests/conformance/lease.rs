//! Leases: renewed while held, ended when not, and never believed in for too long.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_locks::{
    AcquireResponse, LockError, LockMode, LossReason, Moment, QueueMode, ReleaseOutcome,
};
use handfast_test_services::until;

use crate::faults::Faulty;
use crate::owner::{give_away, take};
use crate::setup::{LEASE, TestBackend, acquire_request, fresh, lock_ref, over};

/// A lease that ends within a test.
pub(crate) const SHORT: Duration = Duration::from_millis(400);
/// Leases that are renewed within a test, in the order in which they are tried.
const RENEWED: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(12), Duration::from_secs(40)];
/// The same for a case that waits for as long as a lease.
const BRIEF: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15)];

/// Runs a case that needs a renewal to be answered before its lease ends, which on a busy machine
/// may take seconds: with a longer lease each time, until the case returns that it was.
pub(crate) async fn renewed_in_time(case: impl AsyncFn(Duration) -> bool) {
    renewed_in_one_of(RENEWED, case).await;
}

async fn renewed_in_one_of(leases: [Duration; 3], case: impl AsyncFn(Duration) -> bool) {
    for lease in leases {
        if case(lease).await {
            return;
        }
    }
    panic!("no renewal was answered in time");
}

pub(crate) async fn a_lock_is_renewed(setup: &TestBackend) {
    renewed_in_time(async |lease| outlives_its_lease(setup, LockMode::Exclusive, lease).await)
        .await;
}

/// Returns whether a lock is held for longer than its lease, because it is renewed.
pub(crate) async fn outlives_its_lease(
    setup: &TestBackend,
    mode: LockMode,
    lease: Duration,
) -> bool {
    let locks = setup.settings().lease(lease).start().unwrap();
    let name = fresh();
    let guard = match mode {
        LockMode::Exclusive => locks.lock(&name).await.unwrap(),
        LockMode::Shared { .. } => locks.lock_shared(&name).await.unwrap(),
    };
    let over = guard.deadline() + lease;
    while Moment::now() < over {
        if setup.locks().try_lock(&name).await.is_ok() {
            return false;
        }
        // Only time ends a lease, so time must pass to show that this one is renewed.
        tokio::time::sleep(lease / 10).await;
    }
    let is_renewed = guard.is_held() && guard.deadline() > over;
    is_renewed && guard.release().await.unwrap() == ReleaseOutcome::Released
}

pub(crate) async fn a_lease_ends_without_renewal(setup: &TestBackend) {
    let name = fresh();
    let mut request = acquire_request(&lock_ref(&name), QueueMode::NoWait);
    request.lease = SHORT;
    assert!(matches!(
        setup.backend.acquire(&request).await.unwrap(),
        AcquireResponse::Granted { .. }
    ));
    // There is no release: the lease ends.
    assert!(setup.locks().lock(&name).await.unwrap().is_held());
}

pub(crate) async fn a_renewal_does_not_bring_back_what_was_lost(setup: &TestBackend) {
    let name = fresh();
    let (old, next) = (lock_ref(&name), lock_ref(&name));
    let mut short = acquire_request(&old, QueueMode::NoWait);
    short.lease = SHORT;
    assert!(matches!(
        setup.backend.acquire(&short).await.unwrap(),
        AcquireResponse::Granted { .. }
    ));
    let renew = async || setup.backend.renew(std::slice::from_ref(&old), LEASE).await.unwrap();
    until("the lease has ended", async || take(setup, &next).await).await;
    assert_eq!(renew().await, [false]);
    let request = handfast_locks::ReleaseRequest {
        lock_ref: next,
        refuse_late_requests: false,
        is_uncontended: true,
    };
    setup.backend.release(&request).await.unwrap();
    // The lock is free, and still not the old holder's.
    assert_eq!(renew().await, [false]);
    assert!(take(setup, &lock_ref(&name)).await);
}

pub(crate) async fn a_batch_is_renewed_one_by_one(setup: &TestBackend) {
    let held = [lock_ref(&fresh()), lock_ref(&fresh())];
    for lock_ref in &held {
        assert!(take(setup, lock_ref).await);
    }
    let [first, second] = held;
    let stranger = lock_ref(first.name.as_str());
    let batch = [second, lock_ref(&fresh()), stranger, first];
    let renewed = setup.backend.renew(&batch, LEASE).await.unwrap();
    assert_eq!(renewed, [true, false, false, true]);
}

pub(crate) async fn a_lock_is_lost_when_the_backend_is_cut_off(setup: &TestBackend) {
    let backend = Arc::new(Faulty::over(&setup.backend));
    let locks = over(Arc::clone(&backend) as _).lease(Duration::from_secs(1)).start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    backend.is_cut.store(true, Ordering::SeqCst);
    assert_eq!(guard.lost().await, LossReason::Deadline);
    assert!(!guard.is_held() && guard.deadline() <= Moment::now());
    assert!(matches!(guard.check(), Err(LockError::Lost { .. })));
    // Nothing brings the lock back.
    backend.is_cut.store(false, Ordering::SeqCst);
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::WasLost);
}

pub(crate) async fn a_lock_freed_behind_its_holder_is_lost(setup: &TestBackend) {
    renewed_in_time(async |lease| {
        let locks = setup.settings().lease(lease).start().unwrap();
        let guard = locks.lock(&fresh()).await.unwrap();
        give_away(setup, &guard).await;
        let reason = guard.lost().await;
        assert!(!guard.is_held());
        is_in_time(reason, LossReason::Taken)
    })
    .await;
}

pub(crate) async fn a_lock_is_not_held_beyond_its_limit(setup: &TestBackend) {
    renewed_in_time(async |lease| {
        let limit = lease + Duration::from_secs(1);
        let locks = setup.settings().lease(lease).hold_max(limit).start().unwrap();
        let guard = locks.lock(&fresh()).await.unwrap();
        is_in_time(guard.lost().await, LossReason::MaxHold)
    })
    .await;
}

pub(crate) async fn work_is_stopped_when_its_lock_is_lost(setup: &TestBackend) {
    renewed_in_time(async |lease| {
        let locks = setup.settings().lease(lease).start().unwrap();
        let name = fresh();
        let ended = locks
            .run(&name, async |guard| {
                give_away(setup, guard).await;
                std::future::pending::<()>().await;
            })
            .await;
        let Err(LockError::Lost { reason, .. }) = ended else { unreachable!("{ended:?}") };
        is_in_time(reason, LossReason::Taken)
    })
    .await;
}

/// Returns whether a lock was lost for the expected reason, and not because its lease ended before.
fn is_in_time(reason: LossReason, expected: LossReason) -> bool {
    assert!([expected, LossReason::Deadline].contains(&reason), "{reason:?}");
    reason == expected
}

pub(crate) async fn work_is_done_under_the_lock(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let refused = locks.run(&name, async |guard| {
        assert!(guard.is_held());
        setup.locks().try_lock(&name).await.is_err()
    });
    assert!(refused.await.unwrap());
    locks.settle().await.unwrap();
    assert!(locks.try_lock(&name).await.is_ok());
}

pub(crate) async fn nothing_is_renewed_after_the_release(setup: &TestBackend) {
    renewed_in_one_of(BRIEF, async |lease| {
        let backend = Arc::new(Faulty::over(&setup.backend));
        let locks = over(Arc::clone(&backend) as _).lease(lease).start().unwrap();
        let guard = locks.lock(&fresh()).await.unwrap();
        let mut renewals = backend.renewals.subscribe();
        tokio::select! {
            _sent = renewals.wait_for(|renewals| *renewals > 0) => {}
            _reason = guard.lost() => return false,
        }
        let outcome = guard.release().await.unwrap();
        assert!(matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::WasLost));
        let renewals = *backend.renewals.borrow();
        // The absence of an event cannot be awaited: a renewal would be sent within the lease.
        tokio::time::sleep(lease).await;
        assert_eq!(*backend.renewals.borrow(), renewals);
        true
    })
    .await;
}
