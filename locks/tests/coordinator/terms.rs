//! A delay after a lease that ended by itself, and a limit that the coordinator keeps.

use std::time::Duration;

use handfast_locks::{
    AcquireRequest, AcquisitionId, Backend, LockMode, LockName, Locks, LossReason, Moment,
    QueueMode, ReleaseOutcome,
};

use crate::tc::Tc;
use crate::{connect, over};

const SHORT: Duration = Duration::from_millis(300);
/// Leases that are renewed within a test, in the order in which they are tried: on a busy machine a
/// renewal may be answered after its lease, which ends the lock before its limit does.
const RENEWED: [Duration; 3] =
    [Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(45)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreleased_lock_is_delayed_after_its_lease() {
    let tc = Tc::start().await;
    let backend = connect(&tc).await.locks().delay(SHORT * 3);
    // A client that has died does not renew.
    let id = AcquisitionId { client: 7, number: 1 };
    let (name, mode, lease) = (LockName::new("job").unwrap(), LockMode::Exclusive, SHORT);
    let (label, queue) = ("died".into(), QueueMode::NoWait);
    let began = Moment::now();
    backend.acquire(&AcquireRequest { name, id, mode, lease, label, queue }).await.unwrap();
    let guard = over(backend.clone()).start().unwrap().lock("job").await.unwrap();
    assert!(Moment::now() >= began + SHORT * 4);
    // After a release the lock is free at once, also for a request without waiting.
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(over(backend).start().unwrap().try_lock("job").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_not_held_beyond_the_limit_of_the_coordinator() {
    for lease in RENEWED {
        if Box::pin(ends_by_its_limit(lease)).await {
            return;
        }
    }
    panic!("no renewal was answered in time");
}

/// Holds a lock with a limit that is longer than its lease. Returns whether the limit ended it, and
/// not the lease.
async fn ends_by_its_limit(lease: Duration) -> bool {
    let tc = Tc::start().await;
    let limit = lease + Duration::from_secs(1);
    let backend = connect(&tc).await.locks().hold_max(limit);
    let locks = Locks::over(backend).lease(lease).start().unwrap();
    let guard = locks.lock("job").await.unwrap();
    let next = over(connect(&tc).await.locks()).start().unwrap();
    let waiting = tokio::spawn(async move { next.lock("job").await.unwrap() });
    // The loss is reported before the limit, and then the lock goes to another.
    let reason = guard.lost().await;
    assert!([LossReason::Taken, LossReason::Deadline].contains(&reason), "{reason:?}");
    assert!(waiting.await.unwrap().fencing_token() > guard.fencing_token());
    reason == LossReason::Taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_lease_may_not_grow_becomes_a_reader() {
    let tc = Tc::start().await;
    // So long that no renewal, which would be refused, is due within the test.
    let lease = Duration::from_secs(60);
    let backend = connect(&tc).await.locks().hold_max(lease);
    let locks = Locks::over(backend).lease(lease).start().unwrap();
    let guard = locks.lock("job").await.unwrap();
    // After any time at all a renewal would end past the limit, and no event tells that time has
    // passed at the coordinator.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let guard = guard.downgrade().await.unwrap();
    let other = over(connect(&tc).await.locks()).start().unwrap();
    let beside = other.try_lock_shared("job").await.unwrap();
    assert_eq!(beside.fencing_token(), guard.fencing_token());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}
