//! A leader that goes, planned or not, and what the next one knows.

use handfast_proto::v1::GlobalStatus;
use handfast_server::admin::model::{NodeStanding, TransferReply};
use handfast_server::serve::ShutdownOutcome;
use http::StatusCode;

use crate::cluster::{Cluster, Node};
use crate::on_each_store;
use crate::shared::Shared;

on_each_store!(
    a_crashed_leader_is_followed_with_all_that_it_acknowledged,
    a_planned_change_loses_no_begin,
    a_leader_that_is_cut_off_acknowledges_nothing,
    the_lead_goes_round,
    the_lead_is_handed_over,
    the_lead_stays_if_no_other_node_is_there,
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

/// The registration that it was asked for meanwhile is refused, and the next leader takes it.
async fn a_leader_that_is_cut_off_acknowledges_nothing<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let (leader, wire) = cluster.start_behind_a_wire("one").await;
    leader.until(NodeStanding::Leading).await;
    let follower = cluster.start_follower("two").await;
    let open = leader.begin().await;
    let token = leader.register(&open, 1).await.unwrap();
    wire.fall_silent();
    let (refused, ()) =
        tokio::join!(leader.register(&open, 2), follower.until(NodeStanding::Leading));
    let refused = refused.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-NOT-LEADING");
    assert_eq!(leader.view().await.standing, NodeStanding::Following);
    assert!(follower.register(&open, 2).await.unwrap() > token);
    assert_eq!(follower.commit(&open).await.unwrap(), GlobalStatus::Committing);
    wire.answer_newcomers();
    let two = follower.view().await.node;
    leader.until_view(|view| view.leader.as_ref() == Some(&two)).await;
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

/// Asked of the node that follows, which passes it on. Nothing is lost, and the node that has given
/// up the lead follows and can be given it back.
async fn the_lead_is_handed_over<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    let (begun, registered) = (leader.begin().await, leader.begin().await);
    let token = leader.register(&registered, 1).await.unwrap();
    let before = leader.view().await.epoch.unwrap();
    let (status, body) = follower.post("/api/v1/cluster/transfer").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let reply: TransferReply = serde_json::from_str(&body).unwrap();
    assert_eq!((reply.leader.id, reply.epoch > before), ("two".to_owned(), true));
    follower.until(NodeStanding::Leading).await;
    leader.until(NodeStanding::Following).await;
    let lines = [Some(before); 2].map(|epoch| ("transfer".to_owned(), epoch));
    assert_eq!(cluster.audited("one"), lines);
    follower.register(&begun, 2).await.unwrap();
    assert!(follower.register(&registered, 3).await.unwrap() > token);
    for xid in [&begun, &registered] {
        assert_eq!(leader.commit(xid).await.unwrap(), GlobalStatus::Committing);
    }
    let (status, body) = follower.post("/api/v1/cluster/transfer").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    leader.until(NodeStanding::Leading).await;
}

async fn the_lead_stays_if_no_other_node_is_there<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let begun = leader.begin().await;
    let (status, body) = leader.post("/api/v1/cluster/transfer").await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert!(body.contains("HF-ADM-NO-OTHER-NODE"), "{body}");
    leader.register(&begun, 1).await.unwrap();
    assert_eq!(leader.commit(&begun).await.unwrap(), GlobalStatus::Committing);
}
