//! Checkpoints: the journal and etcd's history stay small, and nothing is lost on the way.

use std::future::pending;
use std::sync::Arc;

use handfast_etcd::{EtcdClient, EtcdError, KeyRange};
use handfast_server::store::{EtcdOptions, Store};
use tokio::runtime::Builder;

use crate::setup::{LONG, Model, Namespace, delete, puts, start, until};
use crate::wire::Delivery;

#[test]
fn the_journal_is_carried_over_again_and_again() {
    let shared = Namespace::new();
    let leader = shared.candidate("leader", LONG);
    let mut model = Model::default();
    let (epoch, _) = leader.lead();
    for round in 0..60_u64 {
        // Most records are deleted soon; some change; some stay.
        let from = round * 20;
        let deletes = (from.saturating_sub(20)..from).filter(|number| number % 7 != 0).map(delete);
        let batch = [puts(from..from + 20, 20_000), deletes.collect(), puts([7], 30)].concat();
        leader.commit(epoch, batch.clone()).unwrap();
        model.apply(&batch);
    }
    let number = shared.newest();
    until("most batches are among the records", || shared.applied() + 15 > number);
    assert!(shared.keys("journal/").len() < 30);
    model.check(leader.lead().1);
    leader.run(leader.store.resign(leader.lead().0));
    model.check(shared.candidate("second", LONG).lead().1);
}

/// Broken off after some records are written, and one of them in part, a checkpoint does no harm.
#[test]
fn a_checkpoint_that_was_broken_off_does_no_harm() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let first = shared.through(wire.url()).candidate("first", LONG);
    let mut model = Model::default();
    let (epoch, _) = first.lead();
    let batch = [puts([50], 3_000_000), puts(1..=40, 60_000)].concat();
    first.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    let number = shared.newest();
    until("the batches are among the records", || shared.applied() == number);
    // The next one is cut off at the third part of the large record.
    wire.deliver_from(b"/0003", Delivery::Later);
    let batch = [puts([50], 4_500_000), puts(1..=20, 50), vec![delete(21)]].concat();
    first.commit(epoch, batch.clone()).unwrap();
    model.apply(&batch);
    let cut = Arc::clone(&wire);
    first.run_until(pending::<()>(), "it is cut off", move || cut.delivery() == Delivery::Later);
    drop(first);
    assert_eq!(shared.applied(), number);
    assert_eq!(shared.keys("journal/").len(), 1);
    shared.delete("lease");
    let second = shared.candidate("second", LONG);
    let (epoch, found) = second.lead();
    model.check(found);
    // The next leader carries over what the first one has not.
    let number = shared.newest();
    until("the batches are among the records", || shared.applied() == number);
    second.run(second.store.resign(epoch));
    model.check(second.lead().1);
}

#[test]
fn the_history_of_etcd_is_forgotten_behind_the_mark() {
    let etcd = start();
    let shared = Namespace::in_etcd([etcd.url()]);
    let leader = shared.candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    for _ in 0..2 {
        leader.commit(epoch, puts(1..=90, 60_000)).unwrap();
        let number = shared.newest();
        until("the batches are among the records", || shared.applied() == number);
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime
        .block_on(async { EtcdClient::connect(&EtcdOptions::new(&shared.members)).unwrap() });
    until("the history is forgotten", || {
        let all = KeyRange::with_prefix("/handfast/");
        let read = runtime.block_on(client.range(&all, 1, 2));
        matches!(read, Err(EtcdError::Compacted { .. }))
    });
}
