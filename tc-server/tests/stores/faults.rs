//! Answers that are lost on the way, and a store that has forgotten what it had acknowledged.

use std::sync::Arc;

use handfast_core::Epoch;
use handfast_server::store::Leader;
use tokio::time::timeout;

use crate::gate::{LIMIT, Trap};
use crate::store_under_test::{LONG, SharedStore, named, names, put};

crate::on_shared_stores!(
    a_commit_without_an_answer_is_looked_up,
    a_commit_that_did_not_arrive_is_sent_again,
    a_commit_whose_caller_goes_away_ends_the_epoch,
    a_leader_notices_a_store_that_went_back,
);

mod following {
    use super::a_follower_notices_a_store_that_went_back;

    // A follower of the store in etcd looks at the lease alone, and so it knows of no batch.
    crate::on_sql_stores!(a_follower_notices_a_store_that_went_back);
}

async fn a_commit_without_an_answer_is_looked_up<S: SharedStore>() {
    check_commit_over_a_break::<S>(Trap::LoseAnswer(b"cut off")).await;
}

async fn a_commit_that_did_not_arrive_is_sent_again<S: SharedStore>() {
    check_commit_over_a_break::<S>(Trap::LoseRequest(b"cut off")).await;
}

async fn check_commit_over_a_break<S: SharedStore>(trap: Trap) {
    let shared = S::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(1, "before")).await.unwrap();
    process.gate.set(trap);
    process.store.commit(epoch, put(2, "cut off")).await.unwrap();
    assert!(process.gate.is_sprung());
    process.store.commit(epoch, put(3, "after")).await.unwrap();
    let (_, last) = shared.batches().await;
    assert_eq!(last, 4, "each batch is stored once, behind the mark");
    let (_, records) = process.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (2, "cut off"), (3, "after")]));
}

/// Whether its batch is stored is not known then, so that nothing may be stored behind it.
async fn a_commit_whose_caller_goes_away_ends_the_epoch<S: SharedStore>() {
    let shared = S::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.gate.set(Trap::Stop(b"left", 1));
    let store = Arc::clone(&process.store);
    let left = tokio::spawn(async move { store.commit(epoch, put(1, "left")).await });
    process.gate.stopped().await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    shared.wake(&process).await;
    let next = process.store.commit(epoch, put(2, "next")).await.unwrap_err();
    assert_eq!(next.code(), "HF-TC-LEADERSHIP-LOST");
    let (_, records) = process.store.lead(Epoch(0)).await.unwrap();
    // etcd may have heard that its caller has left.
    assert!(records.is_empty() || names(&records) == named(&[(1, "left")]), "{records:?}");
}

async fn a_leader_notices_a_store_that_went_back<S: SharedStore>() {
    let shared = S::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    for number in 1..=4 {
        process.store.commit(epoch, put(number, "acknowledged")).await.unwrap();
    }
    shared.go_back().await;
    let error = process.store.commit(epoch, put(5, "next")).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-WENT-BACK", "{error}");
    timeout(LIMIT, process.store.lost(epoch)).await.unwrap();
    let error = process.store.lead(Epoch(0)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-WENT-BACK", "{error}");
    drop(process);
    // A process that starts knows of nothing that is missing.
    let (_, records) = shared.process(LONG).await.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "acknowledged"), (2, "acknowledged")]));
}

async fn a_follower_notices_a_store_that_went_back<S: SharedStore>() {
    let shared = S::create().await;
    let (leader, follower) = (shared.process(LONG).await, shared.process(LONG).await);
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    for number in 1..=4 {
        leader.store.commit(epoch, put(number, "acknowledged")).await.unwrap();
    }
    let store = Arc::clone(&follower.store);
    let following = tokio::spawn(async move { store.lead(Epoch(0)).await });
    let leads = Leader::Elsewhere { epoch, node: leader.node.clone() };
    let mut known = follower.store.leader();
    timeout(LIMIT, known.wait_for(|known| *known == leads)).await.unwrap().unwrap();
    shared.go_back().await;
    let error = timeout(LIMIT, following).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-WENT-BACK", "{error}");
}
