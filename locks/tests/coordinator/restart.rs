//! The coordinator dies and comes back: leases are as before, queues are built again, tokens grow.

use handfast_locks::ReleaseOutcome;

use crate::tc::Tc;
use crate::{connect, over};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_its_coordinator() {
    let mut tc = Tc::start().await;
    let holder = over(connect(&tc).await.locks()).start().unwrap();
    let other = over(connect(&tc).await.locks()).start().unwrap();
    let guard = holder.lock("job").await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("job").await.unwrap() });
    tc.queue_of("job", 1).await;
    tc.kill().await;
    tc.restart().await;
    // The lock is held as before, and the waiter repeats its request by itself.
    tc.queue_of("job", 1).await;
    assert!(guard.is_held());
    let fencing_token = guard.fencing_token();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(waiting.await.unwrap().fencing_token() > fencing_token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_every_restart() {
    let mut tc = Tc::start().await;
    let locks = over(connect(&tc).await.locks()).start().unwrap();
    let mut last = None;
    for _ in 0..4 {
        let guard = locks.lock("job").await.unwrap();
        assert!(Some(guard.fencing_token()) > last, "{:?} after {last:?}", guard.fencing_token());
        last = Some(guard.fencing_token());
        // Nothing is left of the lock when the coordinator starts again.
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        tc.kill().await;
        tc.restart().await;
    }
}
