//! Limits of one client against all others, and the end of its globals when it has gone.

use handfast_core::Limits;
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::embedded::{RunningServer, Server};
use handfast_test_services::until;
use tonic::Code;
use wire::GlobalStatus;

use crate::common::{self, Client, begin};

/// Starts a coordinator with room for ten globals: six per connection, eight per application.
async fn start(client_grace_ms: u64) -> RunningServer {
    let limits = Limits { globals_max: 10, client_grace_ms, ..Limits::default() };
    Server::builder().limits(limits).start().await.unwrap()
}

fn begin_of(application: &str) -> wire::BeginRequest {
    let (application, name) = (application.to_owned(), "leak".to_owned());
    wire::BeginRequest { application, name, timeout_ms: 24 * 60 * 60 * 1_000, ..Default::default() }
}

/// Begins globals until one is refused. Returns them with the code of the refusal.
async fn leak(client: &mut Client) -> (Vec<String>, String) {
    let mut begun = Vec::new();
    loop {
        let answer = client.ask(Ask::Begin(begin_of("leaky"))).await;
        if let Answer::Rejected(why) = answer {
            return (begun, why.code);
        }
        let Answer::Begin(reply) = answer else { panic!("{answer:?}") };
        begun.push(reply.xid);
    }
}

async fn status(client: &mut Client, xid: &str) -> GlobalStatus {
    let answer = client.ask(Ask::GetStatus(wire::GetStatusRequest { xid: xid.to_owned() })).await;
    let Answer::GetStatus(reply) = answer else { panic!("{answer:?}") };
    reply.status()
}

/// Regression: no other client was served when one client leaked globals.
#[tokio::test]
async fn a_greedy_client_is_limited_to_its_share() {
    let server = start(60_000).await;
    let mut greedy = Client::connect(&server, "greedy", &[]).await;
    let (begun, code) = leak(&mut greedy).await;
    assert_eq!((begun.len(), code.as_str()), (6, "HF-TC-SHARE-REACHED"));
    let mut another = Client::connect(&server, "greedy too", &[]).await;
    let (begun, code) = leak(&mut another).await;
    assert_eq!((begun.len(), code.as_str()), (2, "HF-TC-SHARE-REACHED"), "the application's share");
    let refused = common::unary(&server).await.begin(begin_of("leaky")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-SHARE-REACHED");
    let mut honest = Client::connect(&server, "honest", &[]).await;
    for _ in 0..2 {
        let answer = honest.ask(begin()).await;
        assert!(matches!(answer, Answer::Begin(_)), "{answer:?}");
    }
    server.stop().await.unwrap();
}

/// Lost were the places of globals of a disconnected client, for a day.
#[tokio::test]
async fn globals_of_a_disconnected_client_end_after_its_grace() {
    let server = start(1).await;
    let mut greedy = Client::connect(&server, "greedy", &[]).await;
    let (begun, _) = leak(&mut greedy).await;
    let mut honest = Client::connect(&server, "honest", &[]).await;
    for xid in &begun {
        assert_eq!(status(&mut honest, xid).await, GlobalStatus::Active);
    }
    drop(greedy);
    for xid in &begun {
        until("it is gone", async || status(&mut honest, xid).await == GlobalStatus::Unknown).await;
    }
    server.stop().await.unwrap();
}

/// A broken connection is not the end of a process.
#[tokio::test]
async fn globals_of_a_reconnected_client_are_kept() {
    let server = start(60_000).await;
    let mut first = Client::connect(&server, "a", &[]).await;
    let xid = first.begin().await;
    drop(first);
    let mut again = Client::connect(&server, "a", &[]).await;
    assert_eq!(status(&mut again, &xid).await, GlobalStatus::Active);
    again.register(&xid, 1, "1").await;
    server.stop().await.unwrap();
}
