//! A node that follows: it is ready, it names the leader, and it passes requests on.

use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::admin::model::{
    Cluster as View, NodeStanding, ServerStatus, TransactionDetail,
};
use handfast_test_services::ToolClient;
use http::StatusCode;
use tokio_stream::wrappers::ReceiverStream;

use crate::cluster::{Cluster, Node};
use crate::on_each_store;
use crate::shared::Shared;

on_each_store!(
    one_node_leads_and_the_others_know_it,
    each_node_is_listed,
    requests_to_a_follower_reach_the_leader,
    a_request_is_passed_on_once,
    a_stream_to_a_follower_is_sent_to_the_leader,
    a_follower_is_called_for_nothing,
    clients_of_seata_are_told_the_leader,
    clients_of_seata_are_told_of_every_node,
);

async fn pair<S: Shared>() -> (Cluster, Node, Node) {
    let cluster = Cluster::new::<S>().await;
    let leader = cluster.start_leader("one").await;
    let follower = cluster.start_follower("two").await;
    (cluster, leader, follower)
}

async fn one_node_leads_and_the_others_know_it<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let (led, followed) = (leader.view().await, follower.view().await);
    assert_eq!((led.standing, followed.standing), (NodeStanding::Leading, NodeStanding::Following));
    assert_eq!(led.leader, followed.leader);
    assert_eq!(led.leader.as_ref(), Some(&led.node));
    assert_eq!((led.epoch, led.epoch.is_some()), (followed.epoch, true));
    for node in [&leader, &follower] {
        assert_eq!(node.get("/livez").await.0, StatusCode::OK);
        assert_eq!(node.get("/readyz").await.0, StatusCode::OK);
    }
    assert_eq!(leader.get("/readyz?leader").await.0, StatusCode::OK);
    let (status, body) = follower.get("/readyz?leader").await;
    assert_eq!(
        (status, &*body),
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: another node leads\n")
    );
    let (_, metrics) = follower.get("/metrics").await;
    assert!(metrics.contains("\nhandfast_epoch "), "{metrics}");
}

/// Those that are there, and for a while one that has gone.
async fn each_node_is_listed<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let ids = |view: &View| -> Vec<String> {
        view.nodes.iter().flatten().map(|it| it.node.id.clone()).collect()
    };
    follower.until_view(|view| ids(view) == ["one", "two"]).await;
    let view = leader.view().await;
    assert_eq!(view.nodes.as_ref().map(|nodes| &nodes[0].node), Some(&view.node));
    leader.crash();
    follower.until(NodeStanding::Leading).await;
    assert_eq!(ids(&follower.view().await), ["one", "two"]);
}

async fn requests_to_a_follower_reach_the_leader<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let xid = follower.begin().await;
    follower.register(&xid, 1).await.unwrap();
    let (status, shown) = follower.get(&format!("/api/v1/transactions/{xid}")).await;
    assert_eq!(status, StatusCode::OK, "{shown}");
    let passed_on: TransactionDetail = serde_json::from_str(&shown).unwrap();
    let (_, shown) = leader.get(&format!("/api/v1/transactions/{xid}")).await;
    let direct: TransactionDetail = serde_json::from_str(&shown).unwrap();
    assert_eq!(passed_on.branches, direct.branches);
    let (status, body) = follower.get("/api/v1/status").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let counted: ServerStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((counted.active, counted.locks), (1, 1));
    // So does the request of a tool that is called here.
    let program = ToolClient::connect(follower.server.admin_address, None).await.unwrap();
    let told = program.call("show_status", serde_json::json!({})).await.unwrap().text;
    assert_eq!(serde_json::from_str::<ServerStatus>(&told).unwrap().active, 1);
    let (status, body) = follower.post(&format!("/api/v1/transactions/{xid}/rollback")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    // A refusal comes back as it is.
    let refused = follower.commit(&xid).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-ALREADY-DECIDED");
    let (status, body) = follower.get("/api/v1/transactions/7").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
}

/// Two nodes that each take the other for the leader would pass it to and fro.
async fn a_request_is_passed_on_once<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let (status, body) = follower.get_passed_on("/api/v1/status").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body.contains("HF-TC-NOT-LEADING"), "{body}");
    assert_eq!(leader.get_passed_on("/api/v1/status").await.0, StatusCode::OK);
    let mut begin = tonic::Request::new(wire::BeginRequest::default());
    begin.metadata_mut().insert("handfast-passed-on", "1".parse().unwrap());
    let refused = follower.client().await.begin(begin).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-NOT-LEADING");
}

async fn a_stream_to_a_follower_is_sent_to_the_leader<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let hello = wire::Hello { client_id: "client".to_owned(), ..wire::Hello::default() };
    let message = wire::ClientMessage { id: 1, body: Some(Ask::Hello(hello)) };
    let (frames, sent) = tokio::sync::mpsc::channel(1);
    frames.send(wire::ClientFrame { messages: vec![message] }).await.unwrap();
    let stream = follower.client().await.connect(ReceiverStream::new(sent)).await.unwrap();
    let mut stream = stream.into_inner();
    let frame = stream.message().await.unwrap().expect("the follower answers");
    let [wire::ServerMessage { body: Some(Answer::GoAway(notice)), .. }] = &frame.messages[..]
    else {
        panic!("{frame:?}");
    };
    assert_eq!(notice.leader, leader.server.grpc_address.to_string());
    assert_eq!(Some(notice.epoch), leader.view().await.epoch);
    assert!(stream.message().await.unwrap().is_none(), "the stream ends");
}

/// Regression: a subscriber of a node that does not lead was never called and never told.
async fn a_follower_is_called_for_nothing<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let hello = wire::Hello { client_id: "client".to_owned(), ..wire::Hello::default() };
    let refused = follower.client().await.subscribe(hello).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-NOT-LEADING");
    let detail = refused.metadata().get_bin("handfast-rejection-bin").unwrap();
    let detail = prost::Message::decode(&*detail.to_bytes().unwrap());
    let rejection: wire::Rejection = detail.unwrap();
    let Some(wire::rejection::Detail::NotLeading(named)) = rejection.detail else {
        panic!("{rejection:?}");
    };
    assert_eq!(named.leader, leader.server.grpc_address.to_string());
}

/// Regression: a client that had asked the leader knew no other node, and was lost when the leader
/// went.
async fn clients_of_seata_are_told_of_every_node<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let mut expected: Vec<_> =
        [&leader, &follower].map(|node| node.server.seata_address.unwrap().port()).into();
    expected.sort_unstable();
    for node in [&leader, &follower] {
        let told = async {
            loop {
                let (_, body) = node.get("/metadata/v1/cluster").await;
                let metadata: serde_json::Value = serde_json::from_str(&body).unwrap();
                let nodes = metadata["nodes"].as_array().unwrap().iter();
                let ports = nodes.map(|node| node["transaction"]["port"].as_u64().unwrap());
                let mut ports: Vec<_> = ports.map(|port| u16::try_from(port).unwrap()).collect();
                ports.sort_unstable();
                if ports == expected {
                    return;
                }
                tokio::time::sleep(crate::cluster::ASK_EVERY).await;
            }
        };
        tokio::time::timeout(crate::cluster::LIMIT, told).await.expect("each names both");
    }
}

async fn clients_of_seata_are_told_the_leader<S: Shared>() {
    let (_cluster, leader, follower) = pair::<S>().await;
    let transaction = leader.server.seata_address.unwrap();
    for node in [&leader, &follower] {
        let (status, body) = node.get("/metadata/v1/cluster").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let metadata: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(Some(metadata["term"].as_u64().unwrap()), leader.view().await.epoch);
        let nodes = metadata["nodes"].as_array().unwrap();
        let leaders: Vec<_> = nodes.iter().filter(|node| node["role"] == "LEADER").collect();
        let [named] = leaders[..] else { panic!("{body}") };
        assert_eq!(named["transaction"]["port"], transaction.port(), "{body}");
        assert_eq!(named["transaction"]["host"], transaction.ip().to_string(), "{body}");
    }
}
