//! Lost, doubled and late messages: T-REPLY.

use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Answer, Ask, Fence, Hold, Leave, Left, LockError, Outcome, Place};

use crate::faults::Faulty;
use crate::lease::SHORT;
use crate::stage::{Stage, ask, fresh, hold, over};

/// A lock and its release, with the reply of each message lost once.
pub(crate) async fn every_reply_may_be_lost(stage: &Stage) {
    for lost in 0..3 {
        let faulty = Faulty { reply_lost: Some(lost), ..Faulty::over(&stage.backend) };
        let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
        let guard = locks.lock(&name).await.unwrap();
        assert!(stage.locks().try_lock(&name).await.is_err());
        assert_eq!(guard.release().await.unwrap(), Outcome::Released, "reply {lost}");
        // Held once, freed once.
        assert!(stage.locks().try_lock(&name).await.is_ok(), "reply {lost}");
    }
}

pub(crate) async fn every_request_may_be_sent_twice(stage: &Stage) {
    let doubled = Faulty { is_doubled: true, ..Faulty::over(&stage.backend) };
    let (locks, name) = (over(Arc::new(doubled)).start().unwrap(), fresh());
    for _ in 0..3 {
        let guard = locks.lock(&name).await.unwrap();
        assert!(matches!(locks.try_lock(&name).await, Err(LockError::Busy { .. })));
        assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    }
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn asking_twice_is_answered_alike(stage: &Stage) {
    let hold = hold(&fresh());
    let first = granted(stage, &hold, Place::None).await;
    for place in [Place::None, Place::Join, Place::Keep] {
        assert_eq!(granted(stage, &hold, place).await, first);
    }
    let leave = Leave { hold, is_doubtful: false, is_alone: true };
    assert_eq!(stage.backend.leave(&leave).await.unwrap(), Left::Freed);
    assert_eq!(stage.backend.leave(&leave).await.unwrap(), Left::NotHeld { current: None });
}

/// The fence of what is granted; since when it is, each answer says for itself.
async fn granted(stage: &Stage, hold: &Hold, place: Place) -> Fence {
    let answer = stage.backend.ask(&ask(hold, place)).await.unwrap();
    let Answer::Granted { fence, .. } = answer else { unreachable!("{answer:?}") };
    fence
}

pub(crate) async fn a_request_that_arrives_after_its_end_is_refused(stage: &Stage) {
    let name = fresh();
    let late = hold(&name);
    let leave = Leave { hold: late.clone(), is_doubtful: true, is_alone: false };
    stage.backend.leave(&leave).await.unwrap();
    let answer = stage.backend.ask(&ask(&late, Place::None)).await.unwrap();
    assert!(matches!(answer, Answer::Busy { .. }), "{answer:?}");
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

/// One end must not make another one forgotten.
pub(crate) async fn requests_that_arrive_after_several_ends_are_refused(stage: &Stage) {
    let name = fresh();
    let late = [(); 6].map(|()| hold(&name));
    for hold in &late {
        let leave = Leave { hold: hold.clone(), is_doubtful: true, is_alone: false };
        // It may be sent twice.
        for _ in 0..2 {
            stage.backend.leave(&leave).await.unwrap();
        }
    }
    for hold in &late {
        let answer = stage.backend.ask(&ask(hold, Place::None)).await.unwrap();
        assert!(matches!(answer, Answer::Busy { .. }), "{answer:?}");
    }
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_request_that_arrives_after_a_lost_lock_was_given_up_is_refused(
    stage: &Stage,
) {
    let name = fresh();
    let lost = hold(&name);
    let short = Ask { lease: SHORT, ..ask(&lost, Place::None) };
    assert!(matches!(stage.backend.ask(&short).await.unwrap(), Answer::Granted { .. }));
    // It ends, and nobody else takes the lock.
    tokio::time::sleep(SHORT * 2).await;
    let leave = Leave { hold: lost.clone(), is_doubtful: true, is_alone: false };
    stage.backend.leave(&leave).await.unwrap();
    let answer = stage.backend.ask(&ask(&lost, Place::None)).await.unwrap();
    assert!(matches!(answer, Answer::Busy { .. }), "{answer:?}");
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn a_try_without_an_answer_leaves_nothing(stage: &Stage) {
    let faulty = Faulty { reply_lost: Some(0), ..Faulty::over(&stage.backend) };
    let (locks, name) = (over(Arc::new(faulty)).start().unwrap(), fresh());
    let refused = locks.try_lock(&name).await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })), "{refused:?}");
    locks.settle().await.unwrap();
    let free = stage.locks().lock_timeout(&name, Duration::from_secs(5)).await;
    assert!(free.is_ok());
}
