//! Lost, doubled and late messages: the reply to each request is lost once.

use std::sync::Arc;

use handfast_locks::{
    AcquireRequest, AcquireResponse, FencingToken, LockError, LockRef, QueueMode, ReleaseOutcome,
    ReleaseRequest, ReleaseResponse,
};

use crate::faults::Faulty;
use crate::lease::SHORT;
use crate::setup::{LEASE, TestBackend, acquire_request, fresh, lock_ref, over};

/// A lock and its release, with the reply of each message lost once.
pub(crate) async fn every_reply_may_be_lost(setup: &TestBackend) {
    for lost in 0..3 {
        let faulty = Faulty { reply_lost: Some(lost), ..Faulty::over(&setup.backend) };
        let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
        let guard = locks.lock(&name).await.unwrap();
        assert!(setup.locks().try_lock(&name).await.is_err());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "reply {lost}");
        // The lock was held once and freed once.
        assert!(setup.locks().try_lock(&name).await.is_ok(), "reply {lost}");
    }
}

pub(crate) async fn every_request_may_be_sent_twice(setup: &TestBackend) {
    let doubled = Faulty { is_doubled: true, ..Faulty::over(&setup.backend) };
    let (locks, name) = (over(Arc::new(doubled)).start().unwrap(), fresh());
    for _ in 0..3 {
        let guard = locks.lock(&name).await.unwrap();
        assert!(matches!(locks.try_lock(&name).await, Err(LockError::Busy { .. })));
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn repeated_requests_are_answered_alike(setup: &TestBackend) {
    let lock_ref = lock_ref(&fresh());
    let first = granted(setup, &lock_ref, QueueMode::NoWait).await;
    for queue in [QueueMode::NoWait, QueueMode::Join, QueueMode::KeepPlace] {
        assert_eq!(granted(setup, &lock_ref, queue).await, first);
    }
    let request = ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: true };
    assert_eq!(setup.backend.release(&request).await.unwrap(), ReleaseResponse::Released);
    assert_eq!(
        setup.backend.release(&request).await.unwrap(),
        ReleaseResponse::NotHeld { current: None }
    );
}

/// Returns the fencing token of a granted request. The time of the grant may differ with each
/// answer.
async fn granted(setup: &TestBackend, lock_ref: &LockRef, queue: QueueMode) -> FencingToken {
    let answer = setup.backend.acquire(&acquire_request(lock_ref, queue)).await.unwrap();
    let AcquireResponse::Granted { fencing_token, .. } = answer else { unreachable!("{answer:?}") };
    fencing_token
}

pub(crate) async fn a_request_after_its_release_is_refused(setup: &TestBackend) {
    let name = fresh();
    let late = lock_ref(&name);
    let request = ReleaseRequest {
        lock_ref: late.clone(),
        refuse_late_requests: true,
        is_uncontended: false,
    };
    setup.backend.release(&request).await.unwrap();
    let answer = setup.backend.acquire(&acquire_request(&late, QueueMode::NoWait)).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Busy { .. }), "{answer:?}");
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

/// One release must not make the backend forget another one.
pub(crate) async fn requests_after_several_releases_are_refused(setup: &TestBackend) {
    let name = fresh();
    let late = [(); 6].map(|()| lock_ref(&name));
    for lock_ref in &late {
        let request = ReleaseRequest {
            lock_ref: lock_ref.clone(),
            refuse_late_requests: true,
            is_uncontended: false,
        };
        // A release may be sent twice.
        for _ in 0..2 {
            setup.backend.release(&request).await.unwrap();
        }
    }
    for lock_ref in &late {
        let answer =
            setup.backend.acquire(&acquire_request(lock_ref, QueueMode::NoWait)).await.unwrap();
        assert!(matches!(answer, AcquireResponse::Busy { .. }), "{answer:?}");
    }
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_request_after_the_release_of_a_lost_lock_is_refused(setup: &TestBackend) {
    let name = fresh();
    let lost = lock_ref(&name);
    let short = AcquireRequest { lease: SHORT, ..acquire_request(&lost, QueueMode::NoWait) };
    assert!(matches!(
        setup.backend.acquire(&short).await.unwrap(),
        AcquireResponse::Granted { .. }
    ));
    // The lease ends by time alone: an acquisition that noticed its end would take the lock.
    tokio::time::sleep(SHORT * 2).await;
    let request = ReleaseRequest {
        lock_ref: lost.clone(),
        refuse_late_requests: true,
        is_uncontended: false,
    };
    setup.backend.release(&request).await.unwrap();
    let answer = setup.backend.acquire(&acquire_request(&lost, QueueMode::NoWait)).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Busy { .. }), "{answer:?}");
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_try_without_an_answer_leaves_nothing(setup: &TestBackend) {
    let faulty = Faulty { reply_lost: Some(0), ..Faulty::over(&setup.backend) };
    let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
    let refused = locks.try_lock(&name).await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })), "{refused:?}");
    locks.settle().await.unwrap();
    // The end of a lease would come too late.
    let free = setup.locks().lock_timeout(&name, LEASE / 2).await;
    assert!(free.is_ok());
}
