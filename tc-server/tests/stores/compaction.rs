//! Compaction: it changes nothing that a leader reads, and none that is late changes anything.

use std::sync::Arc;

use handfast_core::{Change, Epoch};
use handfast_server::store::{Leader, MemoryStore, Store, StoreError};
use tokio::time::timeout;

use crate::gate::{LIMIT, Trap};
use crate::sql_under_test::{Kind, Sql};
use crate::store_under_test::{
    COMPACTING, LONG, Options, Process, SharedStore, StoreUnderTest, delete, named, names, put,
};

crate::on_shared_stores!(
    compaction_keeps_the_records,
    a_record_that_was_carried_over_is_deleted_later,
    a_leader_that_sleeps_through_a_compaction_stores_nothing,
    a_compaction_of_a_deposed_leader_changes_nothing,
);

mod reading {
    use super::a_candidate_that_sleeps_before_it_reads_follows;

    // The store in etcd reads at the revision of the mark.
    crate::on_sql_stores!(a_candidate_that_sleeps_before_it_reads_follows);
}

mod of_the_tail {
    use super::{
        a_compaction_that_failed_is_made_up_for, what_the_tail_deletes_is_never_among_the_records,
    };

    // A table shows what was carried over.
    crate::databases::on_every_kind!(
        what_the_tail_deletes_is_never_among_the_records,
        a_compaction_that_failed_is_made_up_for,
    );
}

async fn compaction_keeps_the_records<S: SharedStore>() {
    let shared = S::create().await;
    // Some are deleted within the tail, and some behind it.
    let options = Options { compact_bytes: 2_000, tail_bytes: 1_000, ..LONG };
    let process = shared.process(options).await;
    let model = MemoryStore::new();
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    let (of_model, _) = model.lead(Epoch(0)).await.unwrap();
    for number in 0..300_u64 {
        let deleted = (0..number % 3).map(|back| delete(number.saturating_sub(back + 1)));
        let mut changes: Vec<Change> = deleted.collect();
        changes.append(&mut put(number, "first"));
        changes.append(&mut put(number / 2, &format!("batch {number}")));
        model.commit(of_model, changes.clone()).await.unwrap();
        process.store.commit(epoch, changes).await.unwrap();
    }
    compact_behind(&shared, 1, &process, epoch).await;
    process.store.commit(epoch, vec![delete(FILLING)]).await.unwrap();
    let expected = names(&model.records());
    assert_eq!(names(&process.store.lead(Epoch(0)).await.unwrap().1), expected);
    drop(process);
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), expected);
}

/// A term of the SQL store knows without asking which records its table may have.
async fn a_record_that_was_carried_over_is_deleted_later<S: SharedStore>() {
    let shared = S::create().await;
    let leader = shared.process(COMPACTING).await;
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    // One below and one above what is stored meanwhile.
    let (low, high) = (1, 2 * FILLING);
    for changes in [put(low, "carried"), put(high, "carried"), vec![delete(low), delete(high)]] {
        leader.store.commit(epoch, changes).await.unwrap();
        let (_, last) = shared.batches().await;
        compact_behind(&shared, last, &leader, epoch).await;
    }
    drop(leader);
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(FILLING, "filling")]));
}

/// Stores a batch, and more until the journal holds none up to this number: a compaction is begun
/// when a batch was stored and none is running.
async fn compact_behind<S: SharedStore>(shared: &S, number: u64, leader: &Process, epoch: Epoch) {
    let compacted = async {
        loop {
            leader.store.commit(epoch, put(FILLING, "filling")).await.unwrap();
            if shared.batches().await.0 > number {
                return;
            }
        }
    };
    timeout(LIMIT, compacted).await.expect("the journal is compacted");
}

/// The number of the global that those batches change.
const FILLING: u64 = 1000;

/// A unique number for each batch does not suffice: after a compaction the sleeper's is free again.
async fn a_leader_that_sleeps_through_a_compaction_stores_nothing<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(LONG).await, shared.process(COMPACTING).await);
    let (first, _) = sleeper.store.lead(Epoch(0)).await.unwrap();
    sleeper.store.commit(first, put(1, "before")).await.unwrap();
    let (_, last) = shared.batches().await;

    sleeper.gate.set(Trap::Stop(b"sent asleep", 1));
    let store = Arc::clone(&sleeper.store);
    let late = tokio::spawn(async move { store.commit(first, put(2, "sent asleep")).await });
    sleeper.gate.stopped().await;
    shared.end_lease().await;
    let (second, _) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    next.store.commit(second, put(3, "after")).await.unwrap();
    compact_behind(&shared, last + 1, &next, second).await;
    sleeper.gate.go_on();
    let late = timeout(LIMIT, late).await.unwrap().unwrap();
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    let (first, _) = shared.batches().await;
    assert!(first > last + 1, "batch {first} was stored among those that were deleted");
    let (_, records) = next.store.lead(Epoch(0)).await.unwrap();
    let expected = [(1, "before"), (3, "after"), (FILLING, "filling")];
    assert_eq!(names(&records), named(&expected));
}

async fn a_compaction_of_a_deposed_leader_changes_nothing<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(COMPACTING).await, shared.process(COMPACTING).await);
    let (first, _) = sleeper.store.lead(Epoch(0)).await.unwrap();
    sleeper.gate.set(Trap::Stop(S::COMPACTION, 1));
    sleeper.store.commit(first, put(1, "old")).await.unwrap();
    sleeper.gate.stopped().await;

    let (_, last) = shared.batches().await;
    shared.end_lease().await;
    let (second, _) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    for name in ["newer", "newest"] {
        next.store.commit(second, put(1, name)).await.unwrap();
        next.store.commit(second, vec![delete(2)]).await.unwrap();
    }
    compact_behind(&shared, last + 1, &next, second).await;
    shared.wake(&sleeper).await;
    next.store.commit(second, put(3, "on")).await.unwrap();
    let (_, records) = next.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "newest"), (3, "on"), (FILLING, "filling")]));
}

/// Regression: its process ended, since the records were of a later epoch than its own.
async fn a_candidate_that_sleeps_before_it_reads_follows<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(LONG).await, shared.process(COMPACTING).await);
    sleeper.gate.set(Trap::Stop(b"REPEATABLE READ", 1));
    let store = Arc::clone(&sleeper.store);
    let mut asleep = tokio::spawn(async move { store.lead(Epoch(0)).await });
    sleeper.gate.stopped().await;
    let (_, mark) = shared.batches().await;
    shared.end_lease().await;
    let (epoch, _) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    compact_behind(&shared, mark, &next, epoch).await;

    sleeper.gate.go_on();
    let leads = Leader::Elsewhere { epoch, node: next.node.clone() };
    let mut leader = sleeper.store.leader();
    let follows = timeout(LIMIT, leader.wait_for(|leader| *leader == leads));
    tokio::select! {
        led = &mut asleep => panic!("the sleeper leads: {led:?}"),
        follows = follows => drop(follows.unwrap().unwrap()),
    }
    asleep.abort();
    next.store.confirm(epoch).await.unwrap();
}

/// The second leader finds the tail as the first one has left it.
async fn what_the_tail_deletes_is_never_among_the_records<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let options = Options { tail_bytes: 4_000, ..COMPACTING };
    let leaders = [shared.process(options).await, shared.process(options).await];
    for sql in K::NOTE_CARRIED {
        shared.execute(sql).await;
    }
    for (leader, first) in leaders.iter().zip([2_000, 4_000]) {
        let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
        for number in first..first + 210_u64 {
            let mut changes = vec![delete(number - 10)];
            if number < first + 200 {
                changes.append(&mut put(number, "short-lived"));
            }
            if number % 100 == 0 {
                changes.append(&mut put(1_000 + number, "long-lived"));
            }
            leader.store.commit(epoch, changes).await.unwrap();
        }
        let (_, last) = shared.batches().await;
        compact_behind(&shared, last, leader, epoch).await;
        leader.store.resign(epoch).await;
    }
    let carried =
        |name| format!("SELECT COUNT(*) FROM carried WHERE POSITION('{name}' IN value) > 0");
    assert_eq!(shared.number(&carried("short-lived")).await, 0);
    assert!(shared.number(&carried("long-lived")).await >= 4);
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    let long = [3_000, 3_100, 3_200, 5_000, 5_100, 5_200].map(|number| (number, "long-lived"));
    assert_eq!(names(&records), named(&[&[(FILLING, "filling")], &long[..]].concat()));
}

/// Its changes are no longer in the leader's memory.
async fn a_compaction_that_failed_is_made_up_for<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let leader = shared.process(COMPACTING).await;
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    shared.execute("ALTER TABLE tc_record RENAME TO tc_record_away").await;
    for number in 1..=5 {
        leader.store.commit(epoch, put(number, "of a failed one")).await.unwrap();
    }
    leader.store.commit(epoch, vec![delete(2)]).await.unwrap();
    let (_, last) = shared.batches().await;
    shared.execute("ALTER TABLE tc_record_away RENAME TO tc_record").await;
    compact_behind(&shared, last, &leader, epoch).await;
    let left = [1, 3, 4, 5].map(|number| (number, "of a failed one"));
    let expected = [&left[..], &[(FILLING, "filling")]].concat();
    drop(leader);
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&expected));
}
