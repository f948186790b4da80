//! A delay after a lease that ended by itself, and a limit that the coordinator keeps.

use std::time::Duration;

use handfast_locks::{
    AcquireRequest, AcquisitionId, Backend, LockMode, LockName, Locks, LossReason, Moment,
    QueueMode, ReleaseOutcome,
};

use crate::tc::Tc;
use crate::{connect, over};

const SHORT: Duration = Duration::from_millis(300);

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
    let tc = Tc::start().await;
    let (lease, limit) = (Duration::from_secs(4), Duration::from_secs(5));
    let backend = connect(&tc).await.locks().hold_max(limit);
    let locks = Locks::over(backend).lease(lease).start().unwrap();
    let guard = locks.lock("job").await.unwrap();
    let next = over(connect(&tc).await.locks()).start().unwrap();
    let waiting = tokio::spawn(async move { next.lock("job").await.unwrap() });
    // The loss is reported before the limit, and then the lock goes to another.
    assert_eq!(guard.lost().await, LossReason::Taken);
    assert!(waiting.await.unwrap().fencing_token() > guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_lease_may_not_grow_becomes_a_reader() {
    let tc = Tc::start().await;
    let lease = Duration::from_secs(4);
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
