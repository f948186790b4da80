//! Clients of Seata at any node: they are served by the leader, and go on with the next one.

use handfast_seata_wire::value::GlobalStatus;
use handfast_server::admin::model::{NodeStanding, Processes};
use handfast_server::serve::ShutdownOutcome;
use http::StatusCode;
use tokio::time::timeout;

use crate::cluster::{Cluster, LIMIT, Node};
use crate::on_each_store;
use crate::seata_client::SeataClient;
use crate::shared::Shared;

on_each_store!(
    a_seata_client_of_a_follower_is_served_by_the_leader,
    a_seata_client_goes_on_when_the_leader_is_killed,
    a_seata_client_goes_on_when_the_lead_is_handed_over,
);

fn seata(node: &Node) -> std::net::SocketAddr {
    node.server.seata_address.unwrap()
}

/// Waits until one of two nodes leads, and returns it and the one that follows.
async fn settled(one: Node, other: Node) -> (Node, Node) {
    let leads = async |node: &Node| node.until(NodeStanding::Leading).await;
    let is_one = tokio::select! {
        () = leads(&one) => true,
        () = leads(&other) => false,
    };
    let (leader, follower) = if is_one { (one, other) } else { (other, one) };
    let id = leader.view().await.node.id;
    follower.until_view(|view| view.leader.as_ref().is_some_and(|it| it.id == id)).await;
    (leader, follower)
}

async fn a_seata_client_of_a_follower_is_served_by_the_leader<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    let mut client = SeataClient::connect(seata(&follower)).await;
    let (status, body) = leader.get("/api/v1/processes").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let processes: Processes = serde_json::from_str(&body).unwrap();
    let peers: Vec<_> = processes.items.iter().map(|it| it.peer.clone()).collect();
    assert_eq!(peers, [client.address().to_string()]);
    let (_, metrics) = follower.get("/metrics").await;
    assert!(metrics.contains("\nhandfast_seata_passed_on "), "{metrics}");
    let xid = client.begin().await.unwrap();
    client.register(&xid, 1).await.unwrap();
    assert_eq!(client.commit(&xid).await.unwrap(), GlobalStatus::Committed);
    let done = timeout(LIMIT, client.until_committed(&xid)).await;
    done.expect("phase two is called through the follower").unwrap();
}

/// A global that has a branch goes on; the client does nothing but connect again.
async fn a_seata_client_goes_on_when_the_leader_is_killed<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let (two, three) = (cluster.start_follower("two").await, cluster.start_follower("three").await);
    let mut clients = Vec::new();
    for (row, follower) in [(1, &two), (2, &three)] {
        let mut client = SeataClient::connect(seata(follower)).await;
        let xid = client.begin().await.unwrap();
        client.register(&xid, row).await.unwrap();
        clients.push((client, xid));
    }
    leader.crash();
    for (client, _) in &mut clients {
        client.until_cut().await;
    }
    // Before it is known who leads: clients do not know either.
    let (at_two, at_three) =
        (SeataClient::connect(seata(&two)), SeataClient::connect(seata(&three)));
    let (at_two, at_three) = tokio::join!(at_two, at_three);
    for (mut client, (_, xid)) in [at_two, at_three].into_iter().zip(&clients) {
        assert_eq!(client.commit(xid).await.unwrap(), GlobalStatus::Committed);
    }
    let (_leader, follower) = settled(two, three).await;
    let mut client = SeataClient::connect(seata(&follower)).await;
    let xid = client.begin().await.unwrap();
    client.register(&xid, 1).await.unwrap();
    assert_eq!(client.commit(&xid).await.unwrap(), GlobalStatus::Committed);
}

async fn a_seata_client_goes_on_when_the_lead_is_handed_over<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    let mut client = SeataClient::connect(seata(&follower)).await;
    let begun = client.begin().await.unwrap();
    assert_eq!(leader.server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    client.until_cut().await;
    let mut client = SeataClient::connect(seata(&follower)).await;
    client.register(&begun, 1).await.unwrap();
    assert_eq!(client.commit(&begun).await.unwrap(), GlobalStatus::Committed);
    follower.until(NodeStanding::Leading).await;
}
