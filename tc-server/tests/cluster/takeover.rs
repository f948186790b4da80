//! A leader that goes, planned or not, and what the next one knows.

use handfast_proto::v1::GlobalStatus;
use handfast_server::admin::model::NodeStanding;
use handfast_server::serve::ShutdownOutcome;

use crate::cluster::{Cluster, Node};
use crate::on_each_store;
use crate::shared::Shared;

on_each_store!(
    a_crashed_leader_is_followed_with_all_that_it_acknowledged,
    a_planned_change_loses_no_begin,
    the_lead_goes_round,
);

async fn code(node: &Node, xid: &str, branch_id: u64) -> String {
    let refused = node.register(xid, branch_id).await.unwrap_err();
    refused.metadata().get("handfast-code").unwrap().to_str().unwrap().to_owned()
}

/// A decision, an undecided global with its lock, and tokens that grow: all are there.
async fn a_crashed_leader_is_followed_with_all_that_it_acknowledged<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    let (decided, open, begun) = (leader.begin().await, leader.begin().await, leader.begin().await);
    leader.register(&decided, 1).await.unwrap();
    let token = leader.register(&open, 2).await.unwrap();
    assert_eq!(leader.commit(&decided).await.unwrap(), GlobalStatus::Committing);
    let before = leader.view().await.epoch.unwrap();
    leader.crash();
    follower.until(NodeStanding::Leading).await;
    assert!(follower.view().await.epoch.unwrap() > before);
    assert_eq!(follower.commit(&decided).await.unwrap(), GlobalStatus::Committing);
    let other = follower.begin().await;
    assert_eq!(code(&follower, &other, 2).await, "HF-TC-ROW-LOCKED");
    assert!(follower.register(&open, 3).await.unwrap() > token);
    assert_eq!(follower.commit(&open).await.unwrap(), GlobalStatus::Committing);
    // A crash forgets a global that has no branch yet, and nothing has happened in it.
    assert_eq!(code(&follower, &begun, 4).await, "HF-TC-UNKNOWN-XID");
}

async fn a_planned_change_loses_no_begin<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    let begun = leader.begin().await;
    assert_eq!(leader.server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    follower.until(NodeStanding::Leading).await;
    follower.register(&begun, 1).await.unwrap();
    assert_eq!(follower.commit(&begun).await.unwrap(), GlobalStatus::Committing);
}

/// Each node has led when it comes back, and none has forgotten anything.
async fn the_lead_goes_round<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let mut leader = cluster.start_leader("one").await;
    let (mut epochs, mut xids) = (Vec::new(), Vec::new());
    for name in ["two", "three", "one", "two"] {
        let xid = leader.begin().await;
        leader.register(&xid, 1 + xids.len() as u64).await.unwrap();
        xids.push(xid);
        epochs.push(leader.view().await.epoch.unwrap());
        let next = cluster.start_follower(name).await;
        leader.server.shutdown().await.unwrap();
        next.until(NodeStanding::Leading).await;
        leader = next;
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    for xid in &xids {
        assert_eq!(leader.commit(xid).await.unwrap(), GlobalStatus::Committing);
    }
}
