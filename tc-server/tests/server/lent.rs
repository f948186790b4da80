//! XIDs that are lent over a stream, over a real socket: begun with, repeated, and refused.

use std::sync::Arc;

use handfast_core::Limits;
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::embedded::Server;
use handfast_server::store::MemoryStore;
use wire::{ClientMessage, Decision, GlobalStatus, ReplyWhen};

use crate::common::{Client, RESOURCE, begin, channel, end, register};

fn begin_with(lent_xid: &str, wants: u32) -> Ask {
    let Ask::Begin(request) = begin() else { unreachable!("it is a begin") };
    Ask::Begin(wire::BeginRequest { lent_xid: lent_xid.to_owned(), wants, ..request })
}

/// Gets XIDs lent, in text.
async fn lend(client: &mut Client, wants: u32) -> Vec<String> {
    let answer = client.ask(begin_with("", wants)).await;
    let Answer::Begin(reply) = answer else { panic!("{answer:?}") };
    let loan = reply.loan.expect("some are lent");
    assert_eq!((loan.count, loan.timeout_ms_default), (wants, 60_000));
    let (address, _) = reply.xid.rsplit_once(':').unwrap();
    (0..u64::from(loan.count)).map(|offset| format!("{address}:{}", loan.first + offset)).collect()
}

fn code(answer: Answer) -> String {
    let Answer::Rejected(rejection) = answer else { panic!("{answer:?}") };
    rejection.code
}

#[tokio::test]
async fn a_begin_and_what_follows_it_are_sent_at_once() {
    let server = Server::builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let lent = lend(&mut client, 2).await;
    let messages = [
        begin_with(&lent[1], 0),
        register(&lent[1], 7, "1", 0),
        end(&lent[1], Decision::Commit, ReplyWhen::Decided),
    ];
    let messages = (100..).zip(messages).map(|(id, body)| ClientMessage { id, body: Some(body) });
    client.send_frame(messages.collect()).await;
    let Answer::Begin(begun) = client.answer(100).await else { panic!("it is begun") };
    assert_eq!((&begun.xid, begun.loan), (&lent[1], None));
    assert!(matches!(client.answer(101).await, Answer::RegisterBranch(_)));
    let Answer::End(ended) = client.answer(102).await else { panic!("it is decided") };
    assert_eq!(ended.status(), GlobalStatus::Committing);
    let Answer::Begin(again) = client.ask(begin_with(&lent[1], 0)).await else { panic!("begun") };
    assert_eq!((&again.xid, again.found()), (&lent[1], GlobalStatus::Committing));
}

#[tokio::test]
async fn an_xid_that_is_not_lent_to_the_client_is_refused() {
    let server = Server::builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[]).await;
    let mut other = Client::connect(&server, "b", &[]).await;
    let lent = lend(&mut client, 1).await;
    assert_eq!(code(other.ask(begin_with(&lent[0], 0)).await), "HF-TC-XID-NOT-LENT");
    assert_eq!(code(other.ask(begin_with("no number", 0)).await), "HF-TC-BAD-REQUEST");
    assert!(matches!(client.ask(begin_with(&lent[0], 0)).await, Answer::Begin(_)));
}

/// It would be lent to a connection that other processes may use, and whose end is not noticed.
#[tokio::test]
async fn nothing_is_lent_for_a_unary_call_or_begun_with_a_key() {
    let server = Server::builder().start().await.unwrap();
    let mut unary = CoordinatorClient::new(channel(&server).await);
    let Ask::Begin(request) = begin_with("tc:77", 9) else { unreachable!("it is a begin") };
    let reply = unary.begin(request.clone()).await.unwrap().into_inner();
    assert!(reply.loan.is_none() && reply.xid != "tc:77", "{reply:?}");
    let mut client = Client::connect(&server, "a", &[]).await;
    let keyed = wire::BeginRequest { key: "order-42".to_owned(), wants: 0, ..request };
    let answer = client.ask(Ask::Begin(keyed)).await;
    assert!(matches!(answer, Answer::Begin(_)), "{answer:?}");
}

/// The begin was on its way when the coordinator died. Other processes, undo rows and fences know
/// the global by the address of the coordinator that has lent the XID.
#[tokio::test]
async fn a_later_coordinator_begins_a_lent_global_under_its_address() {
    let store = Arc::new(MemoryStore::new());
    let start = |address: &'static str| {
        let store = Arc::clone(&store);
        Server::builder().store(store).advertise(address).start()
    };
    let first = start("first:7091").await.unwrap();
    let mut client = Client::connect(&first, "a", &[RESOURCE]).await;
    let lent = lend(&mut client, 3).await;
    assert!(matches!(client.ask(begin_with(&lent[0], 0)).await, Answer::Begin(_)));
    drop((client, first));
    let second = start("second:7091").await.unwrap();
    let mut client = Client::connect(&second, "a", &[RESOURCE]).await;
    for xid in &lent[..2] {
        let Answer::Begin(begun) = client.ask(begin_with(xid, 0)).await else { panic!("begun") };
        assert_eq!(&begun.xid, xid);
        client.register(xid, 7, xid).await;
        client.ask(end(xid, Decision::Commit, ReplyWhen::Decided)).await;
        assert_eq!(&client.call().await.branches[0].xid, xid);
    }
}

/// A refused begin is answered before what follows it, which is about an XID that is unknown.
#[tokio::test]
async fn the_refusal_of_a_begin_comes_first() {
    let limits = Limits { globals_max: 1, ..Limits::default() };
    let server = Server::builder().limits(limits).start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let lent = lend(&mut client, 1).await;
    let messages = [begin_with(&lent[0], 0), register(&lent[0], 7, "1", 0)];
    let messages = (100..).zip(messages).map(|(id, body)| ClientMessage { id, body: Some(body) });
    client.send_frame(messages.collect()).await;
    assert_eq!(code(client.answer(101).await), "HF-TC-UNKNOWN-XID");
    assert!(client.has_arrived(100));
    assert_eq!(code(client.answer(100).await), "HF-TC-LIMIT-REACHED");
}
