//! Only the holder frees a lock, and an owner may acquire its own again: T-OWNER.

use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    AcquireResponse, LockError, LockRef, QueueMode, ReleaseOutcome, ReleaseRequest, ReleaseResponse,
};

use crate::setup::{TestBackend, acquire_request, fresh, lock_ref};

pub(crate) async fn release_with_a_foreign_id_changes_nothing(setup: &TestBackend) {
    let name = fresh();
    let guard = setup.locks().lock(&name).await.unwrap();
    let left = release(setup, lock_ref(&name)).await;
    let ReleaseResponse::NotHeld { current: Some(current) } = left else { panic!("{left:?}") };
    assert_eq!((current.id, &*current.label), (guard.id(), "a test"));
    assert!(setup.locks().try_lock(&name).await.is_err());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}

pub(crate) async fn release_without_a_lock_is_not_a_success(setup: &TestBackend) {
    let name = fresh();
    assert_eq!(release(setup, lock_ref(&name)).await, ReleaseResponse::NotHeld { current: None });
    // The same for a lock that exists and is free.
    drop(setup.locks().lock(&name).await.unwrap().release().await);
    assert_eq!(release(setup, lock_ref(&name)).await, ReleaseResponse::NotHeld { current: None });
}

pub(crate) async fn an_old_guard_does_not_free_the_next_holders_lock(setup: &TestBackend) {
    let name = fresh();
    let old = setup.locks().lock(&name).await.unwrap();
    give_away(setup, &old).await;
    let next = setup.locks().lock(&name).await.unwrap();
    assert!(next.fencing_token() > old.fencing_token());
    let ReleaseOutcome::NotOwner { current } = old.release().await.unwrap() else {
        panic!("an old guard freed something");
    };
    assert_eq!(current.id, next.id());
    assert!(setup.locks().try_lock(&name).await.is_err());
    let old = next;
    give_away(setup, &old).await;
    assert_eq!(old.release().await.unwrap(), ReleaseOutcome::WasLost);
}

pub(crate) async fn last_guard_of_an_owner_frees_the_lock(setup: &TestBackend) {
    let (owner, name) = (setup.locks().reentrant("owner"), fresh());
    let mut guards = Vec::new();
    for _ in 0..1000 {
        guards.push(owner.lock(&name).await.unwrap());
    }
    assert!(guards.iter().all(|guard| guard.id() == guards[0].id()));
    while guards.len() > 1 {
        assert_eq!(guards.pop().unwrap().release().await.unwrap(), ReleaseOutcome::StillHeld);
    }
    assert!(setup.locks().try_lock(&name).await.is_err());
    assert_eq!(guards.pop().unwrap().release().await.unwrap(), ReleaseOutcome::Released);
    assert!(setup.locks().try_lock(&name).await.is_ok());
}

pub(crate) async fn another_owner_is_refused_at_every_depth(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let (owner, other) = (locks.reentrant("owner"), locks.reentrant("other"));
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(owner.try_lock(&name).await.unwrap());
        assert!(matches!(other.try_lock(&name).await, Err(LockError::Busy { .. })));
    }
    // An owner of the same name in another client is another owner.
    let namesake = setup.locks().reentrant("owner");
    assert!(matches!(namesake.try_lock(&name).await, Err(LockError::Busy { .. })));
    let waited = namesake.lock_timeout(&name, Duration::from_millis(50)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { .. })));
}

pub(crate) async fn an_owner_sends_one_request_for_many_guards(setup: &TestBackend) {
    let (locks, name) = (setup.locks(), fresh());
    let guards = join_all((0..10).map(|_| {
        let (owner, name) = (locks.reentrant("owner"), name.clone());
        async move { owner.lock(&name).await.unwrap() }
    }));
    let guards = guards.await;
    assert!(guards.iter().all(|guard| guard.id() == guards[0].id()));
}

pub(crate) async fn an_owner_that_lost_a_lock_acquires_it_again(setup: &TestBackend) {
    let locks = setup.settings().lease(Duration::from_secs(3)).start().unwrap();
    let (owner, name) = (locks.reentrant("owner"), fresh());
    let lost = owner.lock(&name).await.unwrap();
    give_away(setup, &lost).await;
    lost.lost().await;
    let held = owner.lock(&name).await.unwrap();
    assert!(held.is_held() && held.fencing_token() > lost.fencing_token());
}

async fn release(setup: &TestBackend, lock_ref: LockRef) -> ReleaseResponse {
    setup
        .backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: true })
        .await
        .unwrap()
}

/// Frees a lock behind its guard's back.
pub(crate) async fn give_away(setup: &TestBackend, guard: &handfast_locks::Guard) {
    let lock_ref = LockRef { name: guard.name().clone(), id: guard.id() };
    assert_eq!(release(setup, lock_ref).await, ReleaseResponse::Released);
}

/// Takes a lock without a client.
pub(crate) async fn take(setup: &TestBackend, lock_ref: &LockRef) -> bool {
    let answer =
        setup.backend.acquire(&acquire_request(lock_ref, QueueMode::NoWait)).await.unwrap();
    matches!(answer, AcquireResponse::Granted { .. })
}
