//! Locks that are held in parts: readers beside one another, permits of a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    Answer, Ask, Guard, Leave, Left, LockError, Locks, Moment, Outcome, Place, Share,
};
use tokio::task::JoinHandle;

use crate::faults::Faulty;
use crate::stage::{Stage, ask, fresh, hold, over};
use crate::waiting::eventually_free;

pub(crate) async fn readers_hold_a_lock_together(stage: &Stage) {
    let name = fresh();
    let readers = join_all((0..5).map(|_| stage.locks()).map(|locks| {
        let name = name.clone();
        async move { locks.try_lock_shared(&name).await.unwrap() }
    }));
    let readers = readers.await;
    assert!(readers.iter().all(Guard::is_held));
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), Outcome::Released);
    }
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_writer_is_alone(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let Err(LockError::Busy { holder: Some(holder), .. }) = locks.try_lock_shared(&name).await
    else {
        panic!("a reader beside a writer");
    };
    assert_eq!(holder.token, writer.token());
    assert_eq!(writer.release().await.unwrap(), Outcome::Released);
    let readers =
        [locks.lock_shared(&name).await.unwrap(), locks.lock_shared(&name).await.unwrap()];
    for reader in readers {
        let Err(LockError::Busy { holder: Some(holder), .. }) = locks.try_lock(&name).await else {
            panic!("a writer beside a reader");
        };
        assert_eq!(&*holder.label, "a test");
        assert_eq!(reader.release().await.unwrap(), Outcome::Released);
    }
    assert!(locks.try_lock(&name).await.is_ok());
}

pub(crate) async fn readers_who_come_later_do_not_overtake_a_writer(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let reader = locks.lock_shared(&name).await.unwrap();
    let writing = waits(stage, &name, Share::All).await;
    let refused = locks.try_lock_shared(&name).await;
    assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
    let reading = waits(stage, &name, Share::READ).await;
    drop(reader);
    let writer = writing.await.unwrap();
    assert!(!reading.is_finished());
    assert_eq!(writer.release().await.unwrap(), Outcome::Released);
    assert!(reading.await.unwrap().is_held());
}

pub(crate) async fn readers_who_wait_get_in_together(stage: &Stage) {
    let name = fresh();
    let writer = stage.locks().lock(&name).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(waits(stage, &name, Share::READ).await);
    }
    drop(writer);
    let readers: Vec<Guard> = join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    assert!(readers.iter().all(Guard::is_held));
}

pub(crate) async fn a_writer_becomes_a_reader(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let (token, fence) = (writer.token(), writer.fence());
    let reading = waits(stage, &name, Share::READ).await;
    let reader = writer.downgrade().await.unwrap();
    assert_eq!((reader.token(), reader.fence()), (token, fence));
    // Nobody can have written meanwhile, and the resource must let both in.
    let other = reading.await.unwrap();
    assert_eq!(other.fence(), fence);
    assert!(locks.try_lock(&name).await.is_err());
    assert_eq!(reader.release().await.unwrap(), Outcome::Released);
    assert!(locks.try_lock(&name).await.is_err());
    assert_eq!(other.release().await.unwrap(), Outcome::Released);
    assert!(locks.lock(&name).await.unwrap().fence() > fence);
}

pub(crate) async fn every_reply_to_a_downgrade_may_be_lost(stage: &Stage) {
    let faulty = Faulty { reply_lost: Some(1), ..Faulty::over(&stage.backend) };
    let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
    let reader = locks.lock(&name).await.unwrap().downgrade().await.unwrap();
    let other = stage.locks().try_lock_shared(&name).await.unwrap();
    assert_eq!(reader.fence(), other.fence());
    assert_eq!(reader.release().await.unwrap(), Outcome::Released);
    // A request for all that comes late does not take back what was given.
    let first = ask_for(&name, Share::All);
    assert!(matches!(stage.backend.ask(&first).await.unwrap(), Answer::Busy { .. }));
    drop(other);
    while !matches!(stage.backend.ask(&first).await.unwrap(), Answer::Granted { .. }) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for share in [Share::READ, Share::All, Share::READ] {
        let answer = stage.backend.ask(&Ask { share, ..first.clone() }).await.unwrap();
        // To the late one nobody listens.
        assert!(share == Share::All || matches!(answer, Answer::Granted { .. }), "{answer:?}");
    }
    assert!(stage.locks().try_lock_shared(&name).await.is_ok());
}

pub(crate) async fn a_downgrade_of_a_lost_lock_is_refused(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    crate::owner::give_away(stage, &writer).await;
    let next = stage.locks().lock(&name).await.unwrap();
    let refused = writer.downgrade().await;
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    // Nor is it taken anew by that.
    let again = stage.locks().lock_shared(&fresh()).await.unwrap();
    assert!(again.is_held() && next.is_held());
    let limited = stage.settings().hold_max(Duration::from_millis(300)).start().unwrap();
    let known = limited.lock(&fresh()).await.unwrap();
    known.lost().await;
    assert!(matches!(known.downgrade().await, Err(LockError::Lost { .. })));
    let entered = locks.reentrant("owner").lock(&fresh()).await.unwrap();
    assert!(matches!(entered.downgrade().await, Err(LockError::Settings { .. })));
}

pub(crate) async fn fences_grow_from_writer_to_writer(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let mut last = None;
    for _ in 0..3 {
        let readers =
            [locks.lock_shared(&name).await.unwrap(), locks.lock_shared(&name).await.unwrap()];
        assert_eq!(readers[0].fence(), readers[1].fence());
        assert!(Some(readers[0].fence()) > last);
        last = Some(readers[0].fence());
        drop(readers);
        let writer = locks.lock(&name).await.unwrap();
        assert!(Some(writer.fence()) > last);
        last = Some(writer.fence());
        drop(writer);
    }
}

pub(crate) async fn parts_are_renewed(stage: &Stage) {
    // Long enough for a loaded machine.
    let lease = Duration::from_secs(6);
    let locks = stage.settings().lease(lease).start().unwrap();
    let name = fresh();
    let reader = locks.lock_shared(&name).await.unwrap();
    let over = reader.deadline() + lease;
    while Moment::now() < over {
        assert!(stage.locks().try_lock(&name).await.is_err());
        tokio::time::sleep(lease / 10).await;
    }
    assert!(reader.is_held());
    assert_eq!(reader.release().await.unwrap(), Outcome::Released);
}

/// A dead reader, and a dead holder of a permit, cost their lease.
pub(crate) async fn a_part_ends_with_its_lease(stage: &Stage) {
    let name = fresh();
    for share in [Share::READ, Share::One { of: 1 }] {
        let dead = Ask { lease: Duration::from_millis(400), ..ask_for(&name, share) };
        assert!(matches!(stage.backend.ask(&dead).await.unwrap(), Answer::Granted { .. }));
        let guard = stage.locks().lock(&name).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Outcome::Released);
        let left = leave(stage, &dead).await;
        assert_eq!(left, Left::NotHeld { current: None });
    }
}

pub(crate) async fn permits_are_limited(stage: &Stage) {
    let (clients, name) = ([stage.locks(), stage.locks()], fresh());
    let [inside, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let work = (0..6).map(|worker| {
        let semaphore = clients[worker % 2].semaphore(&name, 3).unwrap();
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        tokio::spawn(async move {
            for _ in 0..4 {
                let permit = semaphore.acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(permit.release().await.unwrap(), Outcome::Released);
            }
        })
    });
    for worker in join_all(work).await {
        worker.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= 3);
}

pub(crate) async fn a_permit_is_its_holders(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let semaphore = locks.semaphore(&name, 2).unwrap();
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.try_acquire().await.unwrap();
    let refused = semaphore.try_acquire().await;
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert!([first.token(), second.token()].contains(&holder.token));
    // Whoever has none gives none back.
    let left = leave(stage, &ask_for(&name, Share::One { of: 2 })).await;
    assert!(matches!(left, Left::NotHeld { current: Some(_) }), "{left:?}");
    assert!(semaphore.try_acquire().await.is_err());
    assert_eq!(first.release().await.unwrap(), Outcome::Released);
    let third = semaphore.try_acquire().await.unwrap();
    assert!(second.is_held() && third.is_held());
}

pub(crate) async fn all_agree_on_the_number_of_permits(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let permit = locks.semaphore(&name, 2).unwrap().acquire().await.unwrap();
    let refused = locks.semaphore(&name, 3).unwrap().acquire().await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("2 permits"), "{source}");
    let refused = locks.lock_shared(&name).await;
    assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    assert_eq!(permit.release().await.unwrap(), Outcome::Released);
    assert!(locks.semaphore(&name, 3).unwrap().acquire().await.is_ok());
    assert!(matches!(locks.semaphore(&name, 0), Err(LockError::Settings { .. })));
}

pub(crate) async fn whoever_waits_for_a_part_leaves_nothing(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let writer = locks.lock(&name).await.unwrap();
    let reading = waits(stage, &name, Share::READ).await;
    reading.abort();
    let limit = Duration::from_millis(300);
    let refused = locks.lock_shared_timeout(&name, limit).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    let refused = locks.semaphore(&name, 2).unwrap().acquire_timeout(limit).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    drop(writer);
    eventually_free(&locks, &name).await;
}

/// On a backend without them.
pub(crate) async fn there_are_no_shares(stage: &Stage) {
    let refused = stage.locks().lock_shared(&fresh()).await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains(stage.backend.name()), "{source}");
}

fn ask_for(name: &str, share: Share) -> Ask {
    Ask { share, ..ask(&hold(name), Place::None) }
}

async fn leave(stage: &Stage, ask: &Ask) -> Left {
    let hold = handfast_locks::Hold { name: ask.name.clone(), token: ask.token };
    stage.backend.leave(&Leave { hold, is_doubtful: false, is_alone: true }).await.unwrap()
}

/// Somebody who waits, and is in the queue.
async fn waits(stage: &Stage, name: &str, share: Share) -> JoinHandle<Guard> {
    let backend = Arc::new(Faulty::over(&stage.backend));
    let locks: Locks = over(Arc::clone(&backend) as _).start().unwrap();
    let name = name.to_owned();
    let waiting = tokio::spawn(async move {
        match share {
            Share::All => locks.lock(&name).await.unwrap(),
            Share::One { .. } => locks.lock_shared(&name).await.unwrap(),
        }
    });
    while backend.answers.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waiting
}
