//! Processes that sleep at the worst moment: what they had sent arrives when another one leads.

use std::sync::Arc;

use handfast_core::Epoch;
use handfast_server::store::{Leader, StoreError};
use tokio::time::timeout;

use crate::gate::{LIMIT, Trap};
use crate::sql_under_test::JournalTable;
use crate::store_under_test::{LONG, SharedStore, named, names, put};

crate::on_shared_stores!(
    a_leader_that_sleeps_before_its_batch_stores_nothing,
    a_mark_that_arrives_late_deposes_no_later_leader,
    a_candidate_that_sleeps_before_its_mark_deposes_no_later_leader,
);

mod of_one_epoch {
    use super::a_row_of_another_process_is_not_its_own;

    // In etcd the lease is part of what a batch compares.
    crate::on_sql_stores!(a_row_of_another_process_is_not_its_own);
}

/// Behind a fail-over that has lost the lease, two processes may have drawn the same epoch.
/// Regression: a batch counted as stored when the row of the other one was found in its place.
async fn a_row_of_another_process_is_not_its_own<S: JournalTable>() {
    let shared = S::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(1, "before")).await.unwrap();
    let (_, last) = shared.batches().await;
    shared.add_row(last + 1, epoch).await;
    let refused = process.store.commit(epoch, put(2, "refused")).await;
    assert!(matches!(refused, Err(StoreError::LostLeadership)), "{refused:?}");
}

async fn a_leader_that_sleeps_before_its_batch_stores_nothing<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(LONG).await, shared.process(LONG).await);
    let (first, _) = sleeper.store.lead(Epoch(0)).await.unwrap();
    sleeper.store.commit(first, put(1, "before")).await.unwrap();

    sleeper.gate.set(Trap::Stop(b"sent asleep", 1));
    let store = Arc::clone(&sleeper.store);
    let late = tokio::spawn(async move { store.commit(first, put(2, "sent asleep")).await });
    sleeper.gate.stopped().await;
    shared.end_lease().await;
    let (second, records) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    assert_eq!(names(&records), named(&[(1, "before")]));
    next.store.commit(second, put(3, "after")).await.unwrap();

    sleeper.gate.go_on();
    let late = timeout(LIMIT, late).await.unwrap().unwrap();
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    timeout(LIMIT, sleeper.store.lost(first)).await.unwrap();
    let again = sleeper.store.commit(first, put(4, "again")).await;
    assert!(matches!(again, Err(StoreError::LostLeadership)), "{again:?}");
    let confirmed = sleeper.store.confirm(first).await;
    assert!(matches!(confirmed, Err(StoreError::LostLeadership)), "{confirmed:?}");
    next.store.confirm(second).await.unwrap();
    next.store.commit(second, put(5, "on")).await.unwrap();
    let (_, records) = next.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (3, "after"), (5, "on")]));
}

/// The epoch that the sleeper asks for.
const EPOCH: Epoch = Epoch(0x005A_5A5A);

async fn a_mark_that_arrives_late_deposes_no_later_leader<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(LONG).await, shared.process(LONG).await);
    let (bytes, times) = S::EPOCH_WITH_MARK;
    sleeper.gate.set(Trap::Stop(bytes, times));
    let store = Arc::clone(&sleeper.store);
    let asleep = tokio::spawn(async move { store.lead(EPOCH).await });
    sleeper.gate.stopped().await;
    shared.end_lease().await;
    let (epoch, _) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    assert!(epoch > EPOCH || !S::DRAWS_EPOCH_WITH_LEASE, "{epoch:?} was drawn after it");
    next.store.commit(epoch, put(1, "before")).await.unwrap();
    shared.wake(&sleeper).await;
    next.store.confirm(epoch).await.unwrap();
    next.store.commit(epoch, put(2, "after")).await.unwrap();

    // The sleeper follows.
    let leads = Leader::Elsewhere { epoch, node: next.node.clone() };
    let mut leader = sleeper.store.leader();
    timeout(LIMIT, leader.wait_for(|leader| *leader == leads)).await.unwrap().unwrap();
    assert!(!asleep.is_finished());
    asleep.abort();
    let (_, records) = next.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (2, "after")]));
}

/// The candidate believes that it has the lease when it goes on. It sees the journal as it is then.
async fn a_candidate_that_sleeps_before_its_mark_deposes_no_later_leader<S: SharedStore>() {
    let shared = S::create().await;
    let (sleeper, next) = (shared.process(LONG).await, shared.process(LONG).await);
    let (bytes, times) = S::BEFORE_MARK;
    sleeper.gate.set(Trap::Stop(bytes, times));
    let store = Arc::clone(&sleeper.store);
    let mut asleep = tokio::spawn(async move { store.lead(Epoch(0)).await });
    sleeper.gate.stopped().await;
    shared.end_lease().await;
    let (epoch, _) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    next.store.commit(epoch, put(1, "before")).await.unwrap();

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
    next.store.commit(epoch, put(2, "after")).await.unwrap();
    let (_, records) = next.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (2, "after")]));
}
