//! Downgrades that the backend refuses.

use super::*;

const START: Moment = Moment::at(Duration::from_secs(1));

/// Makes a machine whose one lock is being downgraded.
fn downgrading() -> (Machine, Vec<Effect>) {
    let (mut machine, mut out) = (holding(1, START), Vec::new());
    machine.decide(START, Event::Downgrade { number: 0 }, &mut out);
    let [Effect::Acquire(request)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((request.mode, request.queue), (LockMode::READ, QueueMode::NoWait));
    out.clear();
    (machine, out)
}

fn answered(answer: Result<AcquireResponse, BackendError>) -> Event {
    Event::AcquireAnswered { number: 0, answer }
}

fn released(machine: &mut Machine, now: Moment) -> ReleaseRequest {
    let mut out = Vec::new();
    machine.decide(now, Event::Release { number: 0 }, &mut out);
    let [Effect::Release(request)] = &out[..] else { panic!("{out:?}") };
    request.clone()
}

/// Regression: every refusal counted as passing, so that a downgrade on a backend without a shared
/// mode was repeated for as long as the lock was held.
#[test]
fn refused_downgrade_leaves_a_writer() {
    let (mut machine, mut out) = downgrading();
    machine.decide(START, answered(Err(BackendError::lasting("no shared mode"))), &mut out);
    let [Effect::DowngradeRefused { number: 0, reason }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(reason.code(), "HF-LOCK-REFUSED");
    // Nothing but the renewal is to come.
    assert_eq!(machine.next_deadline(), Some(START + LEASE / 3));
    let release = released(&mut machine, START);
    assert!(release.is_uncontended && !release.refuse_late_requests, "{release:?}");
}

#[test]
fn denied_downgrade_is_reported_as_denied() {
    let (mut machine, mut out) = downgrading();
    machine.decide(START, answered(Err(BackendError::denied("no right"))), &mut out);
    let [Effect::DowngradeRefused { reason, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(reason.code(), "HF-LOCK-DENIED");
}

/// The unanswered request may have let other readers in.
#[test]
fn downgrade_that_may_have_happened_is_no_writer_again() {
    let (mut machine, mut out) = downgrading();
    machine.decide(START, answered(Err(BackendError::unanswered())), &mut out);
    assert!(out.is_empty(), "{out:?}");
    let now = machine.next_deadline().unwrap();
    machine.decide(now, Event::Tick, &mut out);
    assert!(matches!(out[..], [Effect::Acquire(_)]), "{out:?}");
    out.clear();
    machine.decide(now, answered(Err(BackendError::denied("no right"))), &mut out);
    assert!(matches!(out[..], [Effect::Lost { reason: LossReason::Taken, .. }]), "{out:?}");
    assert!(released(&mut machine, now).refuse_late_requests);
}

#[test]
fn passing_failure_of_a_downgrade_is_repeated() {
    let (mut machine, mut out) = downgrading();
    machine.decide(START, answered(Err(BackendError::unanswered())), &mut out);
    let now = machine.next_deadline().unwrap();
    machine.decide(now, Event::Tick, &mut out);
    let granted = AcquireResponse::granted(FencingToken::new(1));
    machine.decide(now, answered(Ok(granted)), &mut out);
    assert!(matches!(out[..], [Effect::Acquire(_), Effect::Downgraded { .. }]), "{out:?}");
    assert!(!released(&mut machine, now).is_uncontended);
}
