//! How the lead goes from one process to another.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use handfast_core::Epoch;
use handfast_server::store::{Leader, StoreError};
use tokio::time::{sleep, timeout};

use crate::gate::LIMIT;
use crate::store_under_test::{LONG, Options, Process, SHORT, SharedStore, names, put};

crate::on_shared_stores!(
    candidates_that_race_have_an_epoch_each,
    a_lead_that_is_given_up_is_taken_at_once,
    a_lead_that_is_dropped_is_taken_at_once,
    a_follower_that_gives_up_leaves_the_lead_alone,
    a_lease_that_cannot_be_renewed_ends_the_lead,
    a_lease_that_is_renewed_lasts,
);

async fn candidates_that_race_have_an_epoch_each<S: SharedStore>() {
    const ROUNDS: u64 = 5;
    let shared = S::create().await;
    let processes = [shared.process(LONG).await, shared.process(LONG).await];
    let led = processes.iter().zip(0..).map(|(process, index)| async move {
        let mut epochs = Vec::new();
        for round in 0..ROUNDS {
            let (epoch, records) = process.store.lead(Epoch(0)).await.unwrap();
            process.store.commit(epoch, put(10 * index + round, "stored")).await.unwrap();
            process.store.resign(epoch).await;
            epochs.push((epoch, records.len()));
        }
        epochs
    });
    let led = timeout(LIMIT, join_all(led)).await.unwrap().concat();
    let epochs: BTreeSet<Epoch> = led.iter().map(|(epoch, _)| *epoch).collect();
    assert_eq!(epochs.len() as u64, 2 * ROUNDS, "{led:?}");
    // In the order of epochs, each has read all that was stored before.
    let mut led = led;
    led.sort_unstable();
    assert!(led.iter().map(|(_, read)| *read).eq(0..led.len()), "{led:?}");
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records).len(), led.len());
}

/// Waits until a process knows who leads.
async fn until_followed(follower: &Process, epoch: Epoch, leader: &Process) {
    let leads = Leader::Elsewhere { epoch, node: leader.node.clone() };
    let mut known = follower.store.leader();
    timeout(LIMIT, known.wait_for(|known| *known == leads)).await.unwrap().unwrap();
}

async fn a_lead_that_is_given_up_is_taken_at_once<S: SharedStore>() {
    let shared = S::create().await;
    let (leader, follower) = (shared.process(LONG).await, shared.process(LONG).await);
    let (first, _) = leader.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(*leader.store.leader().borrow(), Leader::Here);
    leader.store.commit(first, put(1, "before")).await.unwrap();
    let store = Arc::clone(&follower.store);
    let following = tokio::spawn(async move { store.lead(Epoch(0)).await });
    until_followed(&follower, first, &leader).await;

    leader.store.resign(first).await;
    timeout(LIMIT, leader.store.lost(first)).await.unwrap();
    let late = leader.store.commit(first, put(2, "late")).await;
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    let (second, records) = timeout(LIMIT, following).await.unwrap().unwrap().unwrap();
    assert!(second > first);
    assert_eq!(records.len(), 1);
    assert_eq!(*follower.store.leader().borrow(), Leader::Here);
    follower.store.commit(second, put(3, "after")).await.unwrap();
    // An epoch that is over cannot be given up.
    follower.store.resign(first).await;
    follower.store.confirm(second).await.unwrap();
}

async fn a_lead_that_is_dropped_is_taken_at_once<S: SharedStore>() {
    let shared = S::create().await;
    let (leader, follower) = (shared.process(LONG).await, shared.process(LONG).await);
    let (first, _) = leader.store.lead(Epoch(0)).await.unwrap();
    drop(leader);
    let (second, _) = timeout(LIMIT, follower.store.lead(Epoch(0))).await.unwrap().unwrap();
    assert!(second > first);
}

async fn a_follower_that_gives_up_leaves_the_lead_alone<S: SharedStore>() {
    let shared = S::create().await;
    let (leader, follower) = (shared.process(LONG).await, shared.process(LONG).await);
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    let store = Arc::clone(&follower.store);
    let following = tokio::spawn(async move { store.lead(Epoch(0)).await });
    until_followed(&follower, epoch, &leader).await;
    following.abort();
    leader.store.confirm(epoch).await.unwrap();
    leader.store.commit(epoch, put(1, "kept")).await.unwrap();
}

async fn a_lease_that_cannot_be_renewed_ends_the_lead<S: SharedStore>() {
    let shared = S::create().await;
    let (leader, next) = (shared.process(SHORT).await, shared.process(SHORT).await);
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    leader.gate.stop();
    let lost = leader.store.lost(epoch);
    timeout(LIMIT, lost).await.unwrap();
    let until = leader.store.certain_until(epoch).expect("another process can lead");
    assert!(until <= Instant::now());
    let late = leader.store.commit(epoch, put(1, "late")).await;
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    let (_, records) = timeout(LIMIT, next.store.lead(Epoch(0))).await.unwrap().unwrap();
    assert_eq!(records, []);
    shared.wake(&leader).await;
}

/// The lead outlasts a lease without a batch: it is renewed several times meanwhile.
async fn a_lease_that_is_renewed_lasts<S: SharedStore>() {
    let shared = S::create().await;
    let lease = Duration::from_secs(6);
    let options = Options { lease, ..LONG };
    let (leader, follower) = (shared.process(options).await, shared.process(options).await);
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    let first = leader.store.certain_until(epoch).unwrap();
    let store = Arc::clone(&follower.store);
    let following = tokio::spawn(async move { store.lead(Epoch(0)).await });
    let lasts = async {
        while leader.store.certain_until(epoch).unwrap() < first + lease {
            // Only the passing of time prolongs a lease.
            sleep(lease / 100).await;
        }
    };
    tokio::select! {
        () = leader.store.lost(epoch) => panic!("the lead was lost"),
        () = lasts => {}
    }
    assert!(!following.is_finished());
    leader.store.confirm(epoch).await.unwrap();
}
