//! Leaders and candidates that slept: they store nothing once another one leads.

use std::future::pending;
use std::sync::Arc;

use handfast_core::Epoch;
use handfast_server::store::{Leader, Store, StoreError};

use crate::setup::{LONG, Model, Namespace, SHORT, delete, node, puts, until};
use crate::wire::Delivery;

fn is_lost(done: &Result<(), StoreError>) -> bool {
    matches!(done, Err(StoreError::LostLeadership))
}

#[test]
fn epochs_grow_and_only_the_newest_one_commits() {
    let shared = Namespace::new();
    let leader = shared.candidate("leader", LONG);
    let (first, _) = leader.lead();
    let (second, _) = leader.lead();
    assert!(second > first);
    let later = Epoch(second.0 + 5);
    let (third, _) = leader.run(leader.store.lead(later)).unwrap();
    assert_eq!(third, later, "no earlier than the clock says");
    for earlier in [first, second] {
        assert!(is_lost(&leader.commit(earlier, puts([1], 50))));
        assert!(is_lost(&leader.run(leader.store.confirm(earlier))));
        leader.run(leader.store.lost(earlier));
    }
    leader.commit(third, puts([2], 50)).unwrap();
    leader.run(leader.store.confirm(third)).unwrap();
    let mut model = Model::default();
    model.apply(&puts([2], 50));
    model.check(leader.lead().1);
}

#[test]
fn a_leader_that_slept_stores_nothing_after_another_leads() {
    let shared = Namespace::new();
    let sleeper = shared.sleeper("sleeper", SHORT);
    let (epoch, _) = sleeper.lead();
    let mut model = Model::default();
    sleeper.commit(epoch, puts([1], 50)).unwrap();
    model.apply(&puts([1], 50));

    let second = shared.candidate("second", LONG);
    let (later, found) = second.lead();
    assert!(later > epoch);
    model.check(found);
    assert!(is_lost(&sleeper.commit(epoch, puts([2], 50))));
    assert!(is_lost(&sleeper.run(sleeper.store.confirm(epoch))));
    sleeper.run(sleeper.store.lost(epoch));
    second.commit(later, puts([3], 50)).unwrap();
    model.apply(&puts([3], 50));
    model.check(second.lead().1);
}

/// A number alone would be no fence: it is free again once the batch that had it is carried over.
#[test]
fn a_leader_that_slept_through_a_checkpoint_stores_nothing() {
    let shared = Namespace::new();
    let sleeper = shared.sleeper("sleeper", SHORT);
    let (epoch, _) = sleeper.lead();
    let mut model = Model::default();
    sleeper.commit(epoch, puts([1], 50)).unwrap();
    model.apply(&puts([1], 50));
    let next = shared.newest() + 1;

    let second = shared.candidate("second", LONG);
    let (later, _) = second.lead();
    let large = puts(10..=90, 60_000);
    second.commit(later, large.clone()).unwrap();
    model.apply(&large);
    until("the journal is empty", || shared.applied() > next && shared.keys("journal/").is_empty());

    let late = sleeper.commit(epoch, puts([2], 50));
    assert!(is_lost(&late), "number {next} was free: {late:?}");
    model.check(second.lead().1);
}

/// A candidate that slept, after it took the lease, before or after it looked at the journal, does
/// not depose the leader that came meanwhile. It leads when that one has given up the lead.
#[test]
fn a_candidate_that_slept_does_not_depose_a_later_leader() {
    // The look at the journal names its head alone; the mark is the first that names a batch.
    for slept_at in [&b"/head"[..], b"/journal/"] {
        let shared = Namespace::new();
        let wire = shared.wire();
        // A long lease, so that it goes on where it was and does not give up first.
        let sleeper = shared.through(wire.url()).sleeper("sleeper", LONG);
        wire.deliver_from(slept_at, Delivery::Later);
        let mut gains = sleeper.store.lead(Epoch(0));
        let late = Arc::clone(&wire);
        let what = "a request of the candidate is late";
        sleeper.run_until(&mut gains, what, move || late.delivery() == Delivery::Later);
        assert_eq!(shared.newest(), 0, "its mark is not stored");

        // The end of its lease.
        shared.delete("lease");
        let second = shared.candidate("second", LONG);
        let (epoch, _) = second.lead();
        if slept_at == b"/head" {
            wire.deliver_from(b"/journal/", Delivery::Now);
        }
        wire.deliver(Delivery::Now);
        // Its mark is with etcd before as many looks at the keys are answered. On a slow machine it
        // has given up waiting, and finds out who leads.
        let (awake, looked_at, mut looks) = (Arc::clone(&wire), shared.clone(), 0);
        let leader = sleeper.store.leader();
        sleeper.run_until(&mut gains, "etcd has its mark", move || {
            let gave_up = matches!(*leader.borrow(), Leader::Elsewhere { .. });
            if gave_up || !awake.changes_later() {
                looked_at.newest();
                looks += 1;
            }
            looks == 20
        });
        let mut model = Model::default();
        for number in 1..=200 {
            second.commit(epoch, puts([number], 50)).unwrap();
            model.apply(&puts([number], 50));
        }
        second.run(second.store.confirm(epoch)).unwrap();
        second.run(second.store.resign(epoch));
        let (later, found) = sleeper.run(gains).unwrap();
        assert!(later > epoch);
        model.check(found);
    }
}

/// A request of a checkpoint that was under way for long does not bring back what is deleted.
#[test]
fn a_checkpoint_of_a_deposed_leader_writes_nothing() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let sleeper = shared.through(wire.url()).sleeper("sleeper", SHORT);
    let (epoch, _) = sleeper.lead();
    let mut model = Model::default();
    wire.deliver_from(b"/record/", Delivery::Later);
    // Its checkpoint begins with the record of the smallest key, alone: behind it is a large one.
    let batch = [puts([1], 50), puts([2], 4_500_000)].concat();
    sleeper.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    let late = Arc::clone(&wire);
    let what = "a request of its checkpoint is late";
    sleeper.run_until(pending::<()>(), what, move || late.delivery() == Delivery::Later);
    assert!(shared.keys("record/").is_empty(), "the request is under way");

    let second = shared.candidate("second", LONG);
    let (later, found) = second.lead();
    model.check(found);
    second.sees(&Leader::Here);
    let batch = [vec![delete(1)], puts(100..=190, 60_000)].concat();
    second.commit(later, batch.clone()).unwrap();
    model.apply(&batch);
    let number = shared.newest();
    until("the batches are among the records", || shared.applied() == number);

    let answers = wire.answers();
    wire.deliver(Delivery::Now);
    until("etcd has answered", || wire.answers() > answers);
    for number in 200..=250 {
        second.commit(later, puts([number], 50)).unwrap();
    }
    model.apply(&puts(200..=250, 50));
    model.check(second.lead().1);
    sleeper.sees(&Leader::Elsewhere { epoch: Epoch(later.0 + 1), node: node("second") });
    assert!(is_lost(&sleeper.run(sleeper.store.confirm(epoch))));
}
