//! Only the holder frees, and an owner may enter again: T-OWNER.

use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{Answer, Hold, Leave, Left, LockError, Outcome, Place};

use crate::stage::{Stage, ask, fresh, hold};

pub(crate) async fn letting_go_with_a_foreign_token_changes_nothing(stage: &Stage) {
    let name = fresh();
    let guard = stage.locks().lock(&name).await.unwrap();
    let left = leave(stage, hold(&name)).await;
    let Left::NotHeld { current: Some(current) } = left else { panic!("{left:?}") };
    assert_eq!((current.token, &*current.label), (guard.token(), "a test"));
    assert!(stage.locks().try_lock(&name).await.is_err());
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
}

pub(crate) async fn letting_go_of_what_was_never_held_is_no_success(stage: &Stage) {
    let name = fresh();
    assert_eq!(leave(stage, hold(&name)).await, Left::NotHeld { current: None });
    // The same of a lock that is there and free.
    drop(stage.locks().lock(&name).await.unwrap().release().await);
    assert_eq!(leave(stage, hold(&name)).await, Left::NotHeld { current: None });
}

pub(crate) async fn an_old_guard_does_not_free_the_next_holders_lock(stage: &Stage) {
    let name = fresh();
    let old = stage.locks().lock(&name).await.unwrap();
    give_away(stage, &old).await;
    let next = stage.locks().lock(&name).await.unwrap();
    assert!(next.fence() > old.fence());
    let Outcome::NotOwner { current } = old.release().await.unwrap() else {
        panic!("an old guard freed something");
    };
    assert_eq!(current.token, next.token());
    assert!(stage.locks().try_lock(&name).await.is_err());
    let old = next;
    give_away(stage, &old).await;
    assert_eq!(old.release().await.unwrap(), Outcome::WasLost);
}

pub(crate) async fn an_owner_enters_again_and_frees_at_the_last(stage: &Stage) {
    let (owner, name) = (stage.locks().reentrant("owner"), fresh());
    let mut guards = Vec::new();
    for _ in 0..1000 {
        guards.push(owner.lock(&name).await.unwrap());
    }
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    while guards.len() > 1 {
        assert_eq!(guards.pop().unwrap().release().await.unwrap(), Outcome::StillHeld);
    }
    assert!(stage.locks().try_lock(&name).await.is_err());
    assert_eq!(guards.pop().unwrap().release().await.unwrap(), Outcome::Released);
    assert!(stage.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn another_owner_is_refused_at_every_depth(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let (owner, other) = (locks.reentrant("owner"), locks.reentrant("other"));
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(owner.try_lock(&name).await.unwrap());
        assert!(matches!(other.try_lock(&name).await, Err(LockError::Busy { .. })));
    }
    // The same owner of another client is somebody else.
    let namesake = stage.locks().reentrant("owner");
    assert!(matches!(namesake.try_lock(&name).await, Err(LockError::Busy { .. })));
    let waited = namesake.lock_timeout(&name, Duration::from_millis(50)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { .. })));
}

pub(crate) async fn an_owner_asks_once_for_many(stage: &Stage) {
    let (locks, name) = (stage.locks(), fresh());
    let guards = join_all((0..10).map(|_| {
        let (owner, name) = (locks.reentrant("owner"), name.clone());
        async move { owner.lock(&name).await.unwrap() }
    }));
    let guards = guards.await;
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
}

pub(crate) async fn an_owner_who_lost_a_lock_asks_anew(stage: &Stage) {
    let locks = stage.settings().lease(Duration::from_secs(3)).start().unwrap();
    let (owner, name) = (locks.reentrant("owner"), fresh());
    let lost = owner.lock(&name).await.unwrap();
    give_away(stage, &lost).await;
    lost.lost().await;
    let held = owner.lock(&name).await.unwrap();
    assert!(held.is_held() && held.fence() > lost.fence());
}

async fn leave(stage: &Stage, hold: Hold) -> Left {
    stage.backend.leave(&Leave { hold, is_doubtful: false, is_alone: true }).await.unwrap()
}

/// Frees a lock behind its guard's back.
pub(crate) async fn give_away(stage: &Stage, guard: &handfast_locks::Guard) {
    let hold = Hold { name: guard.name().clone(), token: guard.token() };
    assert_eq!(leave(stage, hold).await, Left::Freed);
}

/// Takes a lock behind everybody's back.
pub(crate) async fn take(stage: &Stage, hold: &Hold) -> bool {
    let answer = stage.backend.ask(&ask(hold, Place::None)).await.unwrap();
    matches!(answer, Answer::Granted { .. })
}
