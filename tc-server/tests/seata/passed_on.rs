//! Clients of Seata at a node that follows: their connections are passed on to the leader.

use std::time::Duration;

use handfast_core::Epoch;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_seata_wire::value::GlobalStatus;
use handfast_server::config::Config;
use handfast_server::engine::Leadership;
use handfast_server::store::Leader;
use handfast_test_services::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::client::{Client, PATIENCE};
use crate::nodes::{Node, impatient};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";
const MEANWHILE: Duration = Duration::from_millis(50);

/// Starts a leader, and a node that follows it.
async fn pair() -> (Node, Node) {
    let (leader, follower) = (Node::start_leader().await, Node::start().await);
    follower.follows(leader.address, 1);
    (leader, follower)
}

async fn register(client: &mut Client) {
    let registered = timeout(PATIENCE, client.register_rm(DATABASE)).await;
    registered.expect("the client is served").outcome.unwrap();
}

async fn closed(client: &mut Client) {
    let end = timeout(PATIENCE, client.read()).await.expect("the connection ends");
    assert!(end.is_none(), "{end:?}");
}

#[tokio::test]
async fn a_client_of_a_follower_is_served_by_the_leader() {
    let (leader, follower) = pair().await;
    let mut client = follower.client().await;
    register(&mut client).await;
    // Its own address, by which the owner of a branch is found, and not that of the follower.
    assert_eq!(leader.peers(), [client.address().to_string()]);
    assert!(follower.peers().is_empty());
    let xid = client.begin(60_000).await;
    client.branch(&xid, DATABASE, "t:1").await;
    assert_eq!(client.commit(&xid).await, GlobalStatus::Committed);
    assert_eq!(client.carry_out_commit().await.xid, xid);
    // The ends of both sides are passed on.
    timeout(PATIENCE, client.hang_up()).await.expect("the leader ends the connection");
    until("the leader has no peer", async || leader.peers().is_empty()).await;
}

/// More than the buffers of the way hold, both ways.
#[tokio::test]
async fn frames_of_any_number_and_size_get_through() {
    let (_leader, follower) = pair().await;
    let mut client = follower.client().await;
    register(&mut client).await;
    let xid = client.begin(60_000).await;
    let rows: Vec<String> = (0..5_000).map(|row| row.to_string()).collect();
    client.branch(&xid, DATABASE, &format!("t:{}", rows.join(","))).await;
    let pings = 5_000;
    for _ in 0..pings {
        client.send(&Message::Ping, MessageKind::Ping).await;
    }
    for _ in 0..pings {
        let answer = timeout(PATIENCE, client.read()).await.unwrap().expect("it goes on");
        assert_eq!(answer.message, Message::Pong);
    }
}

#[tokio::test]
async fn a_client_before_frames_had_lengths_is_passed_on_too() {
    let (_leader, follower) = pair().await;
    let mut old = Client::connect_to(follower.address, "0.6.1").await;
    register(&mut old).await;
    let xid = old.begin(60_000).await;
    assert_eq!(old.commit(&xid).await, GlobalStatus::Committed);
}

/// Two nodes that each take the other for the leader would pass it to and fro.
#[tokio::test]
async fn a_connection_is_passed_on_once() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let follower = Node::start().await;
    follower.follows(elsewhere.local_addr().unwrap(), 1);
    let mut io = TcpStream::connect(follower.address).await.unwrap();
    io.write_all(b"HANDFAST-SEATA/1 10.0.0.5:41822\n").await.unwrap();
    let read = timeout(PATIENCE, io.read_to_end(&mut Vec::new())).await.expect("it is closed");
    assert_eq!(read.unwrap(), 0);
    let another_hop = timeout(MEANWHILE, elsewhere.accept()).await;
    assert!(another_hop.is_err(), "{another_hop:?}");
}

#[tokio::test]
async fn nodes_that_take_each_other_for_the_leader_close() {
    let config = Config::tiny();
    let one = Node::start_as(&config, impatient).await;
    let other = Node::start_as(&config, impatient).await;
    one.follows(other.address, 1);
    other.follows(one.address, 1);
    let mut client = one.client().await;
    client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
    closed(&mut client).await;
}

#[tokio::test]
async fn a_passed_on_connection_ends_when_the_leader_changes() {
    let (_leader, follower) = pair().await;
    let next = Node::start().await;
    next.stands(Leadership::Leading(Epoch(2)));
    let mut client = follower.client().await;
    register(&mut client).await;
    follower.follows(next.address, 2);
    closed(&mut client).await;
    let mut client = follower.client().await;
    register(&mut client).await;
    assert_eq!(next.peers(), [client.address().to_string()]);
    // A follower that takes the lead itself.
    follower.stands(Leadership::Leading(Epoch(3)));
    closed(&mut client).await;
    let mut client = follower.client().await;
    register(&mut client).await;
    assert_eq!(follower.peers(), [client.address().to_string()]);
}

/// The leader has lost its lead and closes before the follower knows of another one.
#[tokio::test]
async fn a_passed_on_connection_ends_with_the_lead() {
    let (leader, follower) = pair().await;
    let mut client = follower.client().await;
    register(&mut client).await;
    leader.stands(Leadership::Following(Leader::Unknown));
    closed(&mut client).await;
    let mut client = follower.client().await;
    let id = client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
    assert!(timeout(MEANWHILE, client.read()).await.is_err(), "it waits for a leader");
    leader.stands(Leadership::Leading(Epoch(2)));
    let answer = timeout(PATIENCE, client.answer_to(id)).await.expect("it is served");
    assert!(matches!(answer, Message::RegisterTmResult(_)), "{answer:?}");
}

/// A client whose connection is closed at once waits half a minute for its registration.
#[tokio::test]
async fn a_client_waits_for_a_leader_that_is_not_known_yet() {
    let (leader, follower) = (Node::start_leader().await, Node::start().await);
    for led_by_itself in [false, true] {
        follower.stands(Leadership::Following(Leader::Unknown));
        let mut client = follower.client().await;
        let id = client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
        assert!(timeout(MEANWHILE, client.read()).await.is_err(), "it waits for a leader");
        if led_by_itself {
            follower.stands(Leadership::Leading(Epoch(2)));
        } else {
            follower.follows(leader.address, 1);
        }
        let answer = timeout(PATIENCE, client.answer_to(id)).await.expect("it is served");
        assert!(matches!(answer, Message::RegisterTmResult(_)), "{answer:?}");
    }
}

/// Where it has lasted for too long already, a client does not wait at all.
#[tokio::test]
async fn a_client_is_closed_where_no_leader_is_found() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for leader in [None, Some(gone)] {
        let follower = Node::start_as(&Config::tiny(), impatient).await;
        leader.into_iter().for_each(|leader| follower.follows(leader, 1));
        for _ in 0..3 {
            let mut client = follower.client().await;
            client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
            closed(&mut client).await;
        }
    }
}

/// A machine may use one port towards two nodes. The client's name, which is made of the address,
/// would belong to two.
#[tokio::test]
async fn an_address_is_there_once() {
    let leader = Node::start_leader().await;
    let mut connections = Vec::new();
    for is_served in [true, false] {
        let mut io = TcpStream::connect(leader.address).await.unwrap();
        io.write_all(b"HANDFAST-SEATA/1 10.0.0.5:41822\n").await.unwrap();
        let mut answer = [0; 20];
        io.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HANDFAST-SEATA/1 OK\n");
        let end = timeout(MEANWHILE, io.read_u8()).await;
        assert_eq!(end.is_err(), is_served, "{end:?}");
        connections.push(io);
    }
}
