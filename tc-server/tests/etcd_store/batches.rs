//! Batches: all of each, in their order, whatever their size.

use std::thread;

use handfast_core::{Change, Epoch};
use handfast_server::store::{EtcdOptions, EtcdStore, EtcdStoreSettings, Store, StoreError};

use crate::setup::{LONG, Model, Namespace, delete, node, puts, record, start, until};
use crate::wire::Delivery;

#[test]
fn a_batch_is_read_back_with_its_puts_deletes_and_repeated_keys() {
    let shared = Namespace::new();
    let first = shared.candidate("first", LONG);
    let mut model = Model::default();
    let (epoch, none) = first.lead();
    assert!(none.is_empty());
    let again = vec![
        Change::Put(record(2, 10)),
        delete(2),
        Change::Put(record(3, 10)),
        Change::Put(record(3, 20)),
        delete(4),
        Change::Put(record(4, 30)),
    ];
    for batch in [puts(1..=4, 5), again, vec![delete(1)], Vec::new()] {
        first.commit(epoch, batch.clone()).unwrap();
        model.apply(&batch);
    }
    let (later, found) = first.lead();
    model.check(found);
    first.run(first.store.resign(later));
    model.check(shared.candidate("second", LONG).lead().1);
}

#[test]
fn a_batch_larger_than_a_request_is_read_back() {
    let shared = Namespace::new();
    let first = shared.candidate("first", LONG);
    let mut model = Model::default();
    let (epoch, _) = first.lead();
    // Small enough to stay in the journal.
    let batch = [puts([1], 2_500_000), puts(2..=20, 40_000)].concat();
    first.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    assert!(shared.keys("part/").len() > 2 && shared.applied() == 0);
    let (epoch, found) = first.lead();
    model.check(found);
    // Large enough to be carried over.
    let batch = [puts([1], 1_200_000), puts([21], 4 << 20), vec![delete(2)]].concat();
    first.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    let number = shared.newest();
    until("the batches are among the records", || shared.applied() == number);
    assert!(shared.keys("part/").is_empty() && shared.keys("journal/").is_empty());
    let (epoch, found) = first.lead();
    model.check(found);
    // A part is left of the first record's former value, and means nothing.
    let batch = [puts([1], 7), vec![delete(21)], puts(30..=100, 60_000)].concat();
    first.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    let number = shared.newest();
    until("the batches are among the records", || shared.applied() == number);
    model.check(first.lead().1);
}

#[test]
fn a_hundred_thousand_records_are_read_back() {
    let shared = Namespace::new();
    let first = shared.candidate("first", LONG);
    let mut model = Model::default();
    let (epoch, _) = first.lead();
    for from in (0..100_000).step_by(2_000) {
        let batch = puts(from..from + 2_000, 60);
        first.commit(epoch, batch.clone()).unwrap();
        model.apply(&batch);
    }
    first.run(first.store.resign(epoch));
    let second = shared.candidate("second", LONG);
    model.check(second.lead().1);
}

/// An answer that is lost is no lost lead, and the batch that is sent again is stored once.
#[test]
fn a_commit_whose_answer_is_lost_is_looked_up() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let leader = shared.through(wire.url()).candidate("leader", LONG);
    let mut model = Model::default();
    let (epoch, _) = leader.lead();
    for number in 1..=3 {
        let batch = puts([number], 50);
        let before = shared.newest();
        wire.deliver_from(b"/journal/", Delivery::WithoutAnswers);
        thread::scope(|scope| {
            let commit = scope.spawn(|| leader.commit(epoch, batch.clone()));
            until("the batch is stored", || shared.newest() > before);
            wire.mend();
            commit.join().unwrap().unwrap();
        });
        assert_eq!(shared.newest(), before + 1);
        model.apply(&batch);
    }
    model.check(leader.lead().1);
}

/// It is unknown whether the batch of a dropped commit is stored, so no other one gets its number.
#[test]
fn a_leader_stores_nothing_after_a_commit_that_was_dropped() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let leader = shared.through(wire.url()).candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    wire.deliver_from(b"/journal/", Delivery::WithoutAnswers);
    let before = shared.newest();
    let commit = leader.store.commit(epoch, puts([1], 50));
    leader.run_until(commit, "the batch is stored", move || shared.newest() > before);
    wire.mend();
    let other = leader.commit(epoch, puts([2], 50));
    assert!(matches!(other, Err(StoreError::LostLeadership)), "{other:?}");
    let mut model = Model::default();
    model.apply(&puts([1], 50));
    model.check(leader.lead().1);
}

#[test]
fn a_full_database_is_named() {
    let mut etcd = start();
    etcd.restart_with(&["quota-backend-bytes=20000000"]).unwrap();
    let shared = Namespace::in_etcd([etcd.url()]);
    let leader = shared.candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    let stored = (1..=100).try_for_each(|number| leader.commit(epoch, puts([number], 900_000)));
    let Err(StoreError::Unusable { reason, .. }) = &stored else { panic!("{stored:?}") };
    assert!(reason.contains("NOSPACE"), "{reason}");
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _within = runtime.enter();
    let open = |members: &[&str], namespace: &str| {
        let etcd = EtcdOptions::new(members.iter().copied());
        let (namespace, node, lease) = (namespace.to_owned(), node("first"), LONG);
        let checkpoint_bytes = EtcdStoreSettings::CHECKPOINT_BYTES;
        EtcdStore::open(EtcdStoreSettings { etcd, namespace, node, lease, checkpoint_bytes })
            .map(drop)
    };
    for (members, namespace, words) in [
        (&["http://127.0.0.1:1"][..], "a/b", "a namespace has"),
        (&["127.0.0.1:1"], "a", "begin with http:// or https://"),
        (&[], "a", "at least one member"),
    ] {
        let refused = open(members, namespace);
        let Err(StoreError::Unusable { reason, .. }) = &refused else { panic!("{refused:?}") };
        assert!(reason.contains(words), "{reason}");
    }
    open(&["http://127.0.0.1:1"], "a").unwrap();
}

/// An etcd that was restored to an earlier state lacks acknowledged batches.
#[test]
fn a_store_that_went_back_is_noticed() {
    let shared = Namespace::new();
    let leader = shared.candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    for number in 1..=3 {
        leader.commit(epoch, puts([number], 50)).unwrap();
    }
    shared.put("head", &format!("{:016x}/{:016x}", epoch.0, 2));
    let went_back = leader.commit(epoch, puts([4], 50));
    assert!(matches!(went_back, Err(StoreError::WentBack { .. })), "{went_back:?}");
    let went_back = leader.run(leader.store.lead(Epoch(0)));
    assert!(matches!(went_back, Err(StoreError::WentBack { .. })), "{went_back:?}");
}
