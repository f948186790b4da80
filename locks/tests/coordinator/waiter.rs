//! A waiter that is silent for long, and comes back.

use handfast_locks::{
    AcquireRequest, AcquireResponse, AcquisitionId, Backend, LockMode, LockName, LockRef,
    QueueMode, ReleaseRequest,
};
use handfast_test_services::until;

use crate::tc::Tc;
use crate::{LEASE, connect};

fn acquire_request(id: AcquisitionId, queue: QueueMode) -> AcquireRequest {
    let (name, label) = (LockName::new("job").unwrap(), "a test".into());
    AcquireRequest { name, id, mode: LockMode::Exclusive, lease: LEASE, label, queue }
}

/// As after a pause of its process: its place is gone, and it may get another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_was_given_up_may_come_back() {
    let tc = Tc::start().await;
    let backend = connect(&tc).await.locks();
    let [holder, waiter] = [1, 2].map(|client| AcquisitionId { client, number: 1 });
    backend.acquire(&acquire_request(holder, QueueMode::NoWait)).await.unwrap();
    let joined = backend.acquire(&acquire_request(waiter, QueueMode::Join)).await.unwrap();
    assert!(matches!(joined, AcquireResponse::Busy { holder: Some(_), .. }), "{joined:?}");
    tc.queue_of("job", 1).await;
    // The waiter sends nothing more.
    tc.queue_of("job", 0).await;
    let asks =
        async || backend.acquire(&acquire_request(waiter, QueueMode::KeepPlace)).await.unwrap();
    until("the waiter has a place again", async || {
        asks().await;
        tc.view(|coordinator| coordinator.counts().lock_queue).await > 0
    })
    .await;
    let lock_ref = LockRef { name: LockName::new("job").unwrap(), id: holder };
    backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: false })
        .await
        .unwrap();
    until("the waiter gets the lock", async || {
        matches!(asks().await, AcquireResponse::Granted { .. })
    })
    .await;
}
