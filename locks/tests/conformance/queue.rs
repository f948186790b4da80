//! The queue in a table of its own.

use handfast_locks::{QueueMode, ReleaseRequest, ReleaseResponse};

use crate::owner::take;
use crate::setup::{TestBackend, acquire_request, fresh, lock_ref};

/// A regression: a request that took the lock may have been cut off before it left the queue. Later
/// waiters then waited for a waiter that was not there any more.
pub(crate) async fn release_removes_the_id_from_the_queue(setup: &TestBackend) {
    let name = fresh();
    let [first, waiter, next] = [lock_ref(&name), lock_ref(&name), lock_ref(&name)];
    assert!(take(setup, &first).await);
    setup.backend.acquire(&acquire_request(&waiter, QueueMode::Join)).await.unwrap();
    assert_eq!(release(setup, first).await, ReleaseResponse::Released);
    // The waiter takes the lock and stays in the queue.
    assert!(take(setup, &waiter).await);
    assert_eq!(release(setup, waiter).await, ReleaseResponse::Released);
    assert!(take(setup, &next).await);
}

async fn release(setup: &TestBackend, lock_ref: handfast_locks::LockRef) -> ReleaseResponse {
    setup
        .backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: false })
        .await
        .unwrap()
}
