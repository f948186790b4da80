//! Shared mode: readers at the same time, and permits of a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    AcquireRequest, AcquireResponse, Guard, LockError, LockMode, Locks, QueueMode, ReleaseOutcome,
    ReleaseRequest, ReleaseResponse,
};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use crate::faults::Faulty;
use crate::lease::{outlives_its_lease, renewed_in_time};
use crate::setup::{TestBackend, acquire_request, fresh, lock_ref, over};
use crate::waiting::eventually_free;

pub(crate) async fn readers_hold_a_lock_together(setup: &TestBackend) {
    let name = fresh();
    let readers = join_all((0..5).map(|_| setup.locks()).map(|locks| {
        let name = name.clone();
        async move { locks.try_lock_shared(&name).await.unwrap() }
    }));
    let readers = readers.await;
    assert!(readers.iter().all(Guard::is_held));
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_writer_is_alone(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let Err(LockError::Busy { holder: Some(holder), .. }) = locks.try_lock_shared(&name).await
    else {
        panic!("a reader beside a writer");
    };
    assert_eq!(holder.id, writer.id());
    assert_eq!(writer.release().await.unwrap(), ReleaseOutcome::Released);
    let readers =
        [locks.lock_shared(&name).await.unwrap(), locks.lock_shared(&name).await.unwrap()];
    for reader in readers {
        let Err(LockError::Busy { holder: Some(holder), .. }) = locks.try_lock(&name).await else {
            panic!("a writer beside a reader");
        };
        assert_eq!(&*holder.label, "a test");
        assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert!(locks.try_lock(&name).await.is_ok());
}

pub(crate) async fn later_readers_do_not_overtake_a_writer(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let reader = locks.lock_shared(&name).await.unwrap();
    let writing = waits(setup, &name, LockMode::Exclusive).await;
    let refused = locks.try_lock_shared(&name).await;
    assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
    let reading = waits(setup, &name, LockMode::READ).await;
    drop(reader);
    let writer = writing.await.unwrap();
    assert!(!reading.is_finished());
    assert_eq!(writer.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(reading.await.unwrap().is_held());
}

pub(crate) async fn waiting_readers_are_granted_together(setup: &TestBackend) {
    let name = fresh();
    let writer = setup.locks().lock(&name).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(waits(setup, &name, LockMode::READ).await);
    }
    drop(writer);
    let readers: Vec<Guard> = join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    assert!(readers.iter().all(Guard::is_held));
}

pub(crate) async fn a_writer_becomes_a_reader(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let (id, fencing_token) = (writer.id(), writer.fencing_token());
    let reading = waits(setup, &name, LockMode::READ).await;
    let reader = writer.downgrade().await.unwrap();
    assert_eq!((reader.id(), reader.fencing_token()), (id, fencing_token));
    // No writer can have come between, and the resource must admit both.
    let other = reading.await.unwrap();
    assert_eq!(other.fencing_token(), fencing_token);
    assert!(locks.try_lock(&name).await.is_err());
    assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(locks.try_lock(&name).await.is_err());
    assert_eq!(other.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(locks.lock(&name).await.unwrap().fencing_token() > fencing_token);
}

pub(crate) async fn every_reply_to_a_downgrade_may_be_lost(setup: &TestBackend) {
    let faulty = Faulty { reply_lost: Some(1), ..Faulty::over(&setup.backend) };
    let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
    let reader = locks.lock(&name).await.unwrap().downgrade().await.unwrap();
    let other = setup.locks().try_lock_shared(&name).await.unwrap();
    assert_eq!(reader.fencing_token(), other.fencing_token());
    assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    // A late request for the exclusive mode does not take back what was given up.
    let first = ask_for(&name, LockMode::Exclusive);
    assert!(matches!(setup.backend.acquire(&first).await.unwrap(), AcquireResponse::Busy { .. }));
    assert_eq!(other.release().await.unwrap(), ReleaseOutcome::Released);
    let late = setup.backend.acquire(&first).await.unwrap();
    assert!(matches!(late, AcquireResponse::Granted { .. }), "{late:?}");
    for mode in [LockMode::READ, LockMode::Exclusive, LockMode::READ] {
        let answer =
            setup.backend.acquire(&AcquireRequest { mode, ..first.clone() }).await.unwrap();
        // The answer to the late request is not used.
        assert!(
            mode == LockMode::Exclusive || matches!(answer, AcquireResponse::Granted { .. }),
            "{answer:?}"
        );
    }
    assert!(setup.locks().try_lock_shared(&name).await.is_ok());
}

pub(crate) async fn a_downgrade_of_a_lost_lock_is_refused(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    crate::owner::give_away(setup, &writer).await;
    let next = setup.locks().lock(&name).await.unwrap();
    let refused = writer.downgrade().await.map_err(LockError::from);
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    // The downgrade does not take the lock again either.
    let again = setup.locks().lock_shared(&fresh()).await.unwrap();
    assert!(again.is_held() && next.is_held());
    let limited = setup.settings().hold_max(Duration::from_millis(300)).start().unwrap();
    let known = limited.lock(&fresh()).await.unwrap();
    known.lost().await;
    assert!(matches!(known.downgrade().await.unwrap_err().reason, LockError::Lost { .. }));
    let entered = locks.reentrant("owner").lock(&fresh()).await.unwrap();
    let refused = entered.downgrade().await.unwrap_err();
    assert!(matches!(refused.reason, LockError::Settings { .. }), "{refused:?}");
    assert!(refused.guard.is_held());
}

pub(crate) async fn tokens_grow_from_writer_to_writer(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let mut last = None;
    for _ in 0..3 {
        let readers =
            [locks.lock_shared(&name).await.unwrap(), locks.lock_shared(&name).await.unwrap()];
        assert_eq!(readers[0].fencing_token(), readers[1].fencing_token());
        assert!(Some(readers[0].fencing_token()) > last);
        last = Some(readers[0].fencing_token());
        drop(readers);
        let writer = locks.lock(&name).await.unwrap();
        assert!(Some(writer.fencing_token()) > last);
        last = Some(writer.fencing_token());
        drop(writer);
    }
}

pub(crate) async fn permits_are_renewed(setup: &TestBackend) {
    renewed_in_time(async |lease| outlives_its_lease(setup, LockMode::READ, lease).await).await;
}

/// A dead reader, and a dead holder of a permit, delay others by their lease.
pub(crate) async fn a_permit_ends_with_its_lease(setup: &TestBackend) {
    let name = fresh();
    for mode in [LockMode::READ, LockMode::Shared { permits: 1 }] {
        let dead = AcquireRequest { lease: Duration::from_millis(400), ..ask_for(&name, mode) };
        assert!(matches!(
            setup.backend.acquire(&dead).await.unwrap(),
            AcquireResponse::Granted { .. }
        ));
        let guard = setup.locks().lock(&name).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        let left = release(setup, &dead).await;
        assert_eq!(left, ReleaseResponse::NotHeld { current: None });
    }
}

/// Each holder of a permit keeps it until two others hold one, and one of the three then asks for a
/// fourth.
pub(crate) async fn permits_are_limited(setup: &TestBackend) {
    let (clients, name) = ([setup.locks(), setup.locks()], fresh());
    let [inside, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let [meet, part] = [(); 2].map(|()| Arc::new(Barrier::new(3)));
    for _ in 0..4 {
        let work = (0..6).map(|worker| {
            let semaphore = clients[worker % 2].semaphore(&name, 3).unwrap();
            let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
            let (meet, part) = (Arc::clone(&meet), Arc::clone(&part));
            tokio::spawn(async move {
                let permit = semaphore.acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let is_leader = meet.wait().await.is_leader();
                let fourth = if is_leader { semaphore.try_acquire().await.ok() } else { None };
                part.wait().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(fourth.is_none(), "{fourth:?}");
                assert_eq!(permit.release().await.unwrap(), ReleaseOutcome::Released);
            })
        });
        for worker in join_all(work).await {
            worker.unwrap();
        }
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

pub(crate) async fn a_permit_belongs_to_its_holder(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let semaphore = locks.semaphore(&name, 2).unwrap();
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.try_acquire().await.unwrap();
    let refused = semaphore.try_acquire().await;
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert!([first.id(), second.id()].contains(&holder.id));
    // An acquisition without a permit gives none back.
    let left = release(setup, &ask_for(&name, LockMode::Shared { permits: 2 })).await;
    assert!(matches!(left, ReleaseResponse::NotHeld { current: Some(_) }), "{left:?}");
    assert!(semaphore.try_acquire().await.is_err());
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
    let third = semaphore.try_acquire().await.unwrap();
    assert!(second.is_held() && third.is_held());
}

pub(crate) async fn all_agree_on_the_number_of_permits(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let permit = locks.semaphore(&name, 2).unwrap().acquire().await.unwrap();
    let refused = locks.semaphore(&name, 3).unwrap().acquire().await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("2 permits"), "{source}");
    let refused = locks.lock_shared(&name).await;
    assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    assert_eq!(permit.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(locks.semaphore(&name, 3).unwrap().acquire().await.is_ok());
    assert!(matches!(locks.semaphore(&name, 0), Err(LockError::Settings { .. })));
}

pub(crate) async fn a_cancelled_wait_for_a_permit_leaves_nothing(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let reading = waits(setup, &name, LockMode::READ).await;
    reading.abort();
    let limit = Duration::from_millis(300);
    let refused = locks.lock_shared_timeout(&name, limit).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    let refused = locks.semaphore(&name, 2).unwrap().acquire_timeout(limit).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    drop(writer);
    eventually_free(&locks, &name).await;
}

/// On a backend without a shared mode.
pub(crate) async fn shared_mode_is_refused(setup: &TestBackend) {
    let refused = setup.locks().lock_shared(&fresh()).await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains(setup.backend.name()), "{source}");
}

/// On a backend without a shared mode. A regression: the downgrade was repeated for as long as the
/// lock was held.
pub(crate) async fn refused_downgrade_leaves_a_writer(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let refused = locks.lock(&name).await.unwrap().downgrade().await.unwrap_err();
    assert!(matches!(refused.reason, LockError::Refused { .. }), "{refused:?}");
    assert!(refused.guard.is_held());
    assert!(matches!(locks.try_lock(&name).await, Err(LockError::Busy { .. })));
    assert_eq!(refused.guard.release().await.unwrap(), ReleaseOutcome::Released);
}

fn ask_for(name: &str, mode: LockMode) -> AcquireRequest {
    AcquireRequest { mode, ..acquire_request(&lock_ref(name), QueueMode::NoWait) }
}

async fn release(setup: &TestBackend, request: &AcquireRequest) -> ReleaseResponse {
    let lock_ref = handfast_locks::LockRef { name: request.name.clone(), id: request.id };
    setup
        .backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: true })
        .await
        .unwrap()
}

/// Starts a waiter, and returns when it is in the queue.
async fn waits(setup: &TestBackend, name: &str, mode: LockMode) -> JoinHandle<Guard> {
    let backend = Arc::new(Faulty::over(&setup.backend));
    let locks: Locks = over(Arc::clone(&backend) as _).start().unwrap();
    let name = name.to_owned();
    let waiting = tokio::spawn(async move {
        match mode {
            LockMode::Exclusive => locks.lock(&name).await.unwrap(),
            LockMode::Shared { .. } => locks.lock_shared(&name).await.unwrap(),
        }
    });
    backend.answered.subscribe().wait_for(|answered| !answered.is_empty()).await.unwrap();
    waiting
}
