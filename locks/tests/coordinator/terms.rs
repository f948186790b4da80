//! A delay after a lease that ended by itself, and a limit that the coordinator keeps.

use std::time::Duration;

use handfast_locks::{Ask, Backend, LockName, Locks, Lost, Moment, Outcome, Place, Share, Token};

use crate::tc::Tc;
use crate::{connect, over};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_not_released_stays_closed_for_a_while() {
    let tc = Tc::start().await;
    let backend = connect(&tc).await.locks().delay(SHORT * 3);
    // A client that has died: nobody renews.
    let token = Token { client: 7, number: 1 };
    let (name, share, lease) = (LockName::new("job").unwrap(), Share::All, SHORT);
    let (label, place) = ("died".into(), Place::None);
    let began = Moment::now();
    backend.ask(&Ask { name, token, share, lease, label, place }).await.unwrap();
    let guard = over(backend.clone()).start().unwrap().lock("job").await.unwrap();
    assert!(Moment::now() >= began + SHORT * 4);
    // Released, it is open at once, for one who does not wait.
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
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
    // It is told before its time is up, and then it is another's.
    assert_eq!(guard.lost().await, Lost::Taken);
    assert!(waiting.await.unwrap().fence() > guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_lease_may_not_grow_becomes_a_reader() {
    let tc = Tc::start().await;
    let lease = Duration::from_secs(4);
    let backend = connect(&tc).await.locks().hold_max(lease);
    let locks = Locks::over(backend).lease(lease).start().unwrap();
    let guard = locks.lock("job").await.unwrap();
    // Another lease's length would end after the limit.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let guard = guard.downgrade().await.unwrap();
    let other = over(connect(&tc).await.locks()).start().unwrap();
    let beside = other.try_lock_shared("job").await.unwrap();
    assert_eq!(beside.fence(), guard.fence());
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
}
