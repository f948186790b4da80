//! The coordinator dies and comes back: leases are as before, queues are made again, tokens grow.

use handfast_locks::Outcome;

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
    // It is held as before, and who waited asks again by himself.
    tc.queue_of("job", 1).await;
    assert!(guard.is_held());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    assert!(waiting.await.unwrap().fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_over_every_restart() {
    let mut tc = Tc::start().await;
    let locks = over(connect(&tc).await.locks()).start().unwrap();
    let mut last = None;
    for _ in 0..4 {
        let guard = locks.lock("job").await.unwrap();
        assert!(Some(guard.fence()) > last, "{:?} after {last:?}", guard.fence());
        last = Some(guard.fence());
        // Nothing is left of the lock when the coordinator starts again.
        assert_eq!(guard.release().await.unwrap(), Outcome::Released);
        tc.kill().await;
        tc.restart().await;
    }
}
