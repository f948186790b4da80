//! Misbehaving clients, which answer for others, linger, or vanish at the worst moment, and a store
//! that panics.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use handfast_core::{Change, Epoch, Record};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{Decision, GlobalStatus, ReplyWhen};
use handfast_server::embedded::Server;
use handfast_server::grpc::Bounds;
use handfast_server::store::{MemoryStore, Store, StoreError};

use crate::common::{Client, RESOURCE, begin, channel, done, end, register, resource};

/// The limit of streams per connection.
const CALLS_MAX: u32 = 1_024;

async fn status(client: &mut Client, xid: &str) -> GlobalStatus {
    let request = wire::GetStatusRequest { xid: xid.to_owned() };
    let answer = client.ask(Ask::GetStatus(request)).await;
    let Answer::GetStatus(reply) = answer else { panic!("{answer:?}") };
    reply.status()
}

/// If such an answer counted, rows would be released that no process has restored.
#[tokio::test]
async fn an_answer_for_an_unregistered_resource_is_ignored() {
    let server = Server::builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let mut stranger = Client::connect(&server, "b", &["sqlite:other"]).await;
    let xid = client.begin().await;
    client.register(&xid, 1, "1").await;
    let finished = client.send(end(&xid, Decision::RollBack, ReplyWhen::Finished)).await;
    let call = client.call().await;
    stranger.send(Ask::Finished(done(&call))).await;
    assert_eq!(status(&mut stranger, &xid).await, GlobalStatus::RollingBack);
    client.finish(&call).await;
    assert!(matches!(client.answer(finished).await, Answer::End(_)));
    assert_eq!(status(&mut stranger, &xid).await, GlobalStatus::RolledBack);
}

/// The earlier stream may be dead without either side having noticed. Its end must not disconnect
/// the process that has reconnected.
#[tokio::test]
async fn a_reconnected_process_replaces_its_lingering_stream() {
    let server = Server::builder().start().await.unwrap();
    let mut lingering = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = lingering.begin().await;
    lingering.register(&xid, 1, "1").await;
    lingering.ask(end(&xid, Decision::RollBack, ReplyWhen::Decided)).await;
    lingering.call().await;

    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let call = client.call().await;
    assert_eq!(call.branches[0].xid, xid);
    drop(lingering);
    client.finish(&call).await;
    let next = client.begin().await;
    client.register(&next, 1, "1").await;
    client.ask(end(&next, Decision::RollBack, ReplyWhen::Decided)).await;
    assert_eq!(client.call().await.branches[0].xid, next);
}

/// A grant may cross the disconnect of its client. The row then belongs to a global whose
/// application has gone, and must be free when that global's time is up.
#[tokio::test]
async fn a_grant_that_crosses_a_disconnect_ends_with_its_global() {
    let server = Server::builder().start().await.unwrap();
    let mut worker = Client::connect(&server, "worker", &[RESOURCE]).await;
    tokio::spawn(async move {
        loop {
            let call = worker.call().await;
            worker.finish(&call).await;
        }
    });
    let mut holder = Client::connect(&server, "holder", &[]).await;
    for round in 0..10_u32 {
        let held = holder.begin().await;
        let taken = holder.ask(register(&held, 1, "1", 60_000)).await;
        assert!(matches!(taken, Answer::RegisterBranch(_)), "round {round}: {taken:?}");
        let mut waiter = Client::connect(&server, "waiter", &[]).await;
        let Ask::Begin(request) = begin() else { unreachable!("it begins") };
        let short = wire::BeginRequest { timeout_ms: 100, ..request };
        let begun = waiter.ask(Ask::Begin(short)).await;
        let Answer::Begin(begun) = begun else { panic!("{begun:?}") };
        waiter.send(register(&begun.xid, 1, "1", 60_000)).await;
        let committed = holder.send(end(&held, Decision::Commit, ReplyWhen::Decided)).await;
        drop(waiter);
        holder.answer(committed).await;
    }
}

fn register_resources(ids: impl Iterator<Item = u32>) -> Ask {
    let resources = ids.map(|id| resource(&format!("sqlite:{id}"))).collect();
    Ask::RegisterResources(wire::RegisterResources { resources })
}

#[tokio::test]
async fn the_resources_of_a_connection_are_limited() {
    let bounds = Bounds { resources_max: 10, ..Bounds::default() };
    let server = Server::builder().bounds(bounds).start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let taken = client.ask(register_resources(0..9)).await;
    assert!(matches!(taken, Answer::RegisterResources(_)), "{taken:?}");
    // Resources that are already registered count once.
    let again = client.ask(register_resources(0..9)).await;
    assert!(matches!(again, Answer::RegisterResources(_)), "{again:?}");
    let refused = client.ask(register_resources(8..10)).await;
    let Answer::Rejected(rejection) = refused else { panic!("{refused:?}") };
    assert_eq!(rejection.code, "HF-TC-TOO-LARGE");
    assert_eq!(rejection.message, "11 resources: at most 10 are allowed");
}

/// Each stream has its own queues, so the number of streams of a connection must be limited.
#[tokio::test]
async fn the_streams_of_a_connection_are_limited() {
    let server = Server::builder().start().await.unwrap();
    let channel = channel(&server).await;
    let mut first = Client::over(channel.clone(), "0", &[]).await;
    let mut streams = Vec::new();
    for number in 1..CALLS_MAX {
        streams.push(Client::over(channel.clone(), &number.to_string(), &[]).await);
    }
    let next = tokio::spawn(async move { Client::over(channel, "next", &[]).await });
    // Earlier requests of the connection are answered earlier.
    for _ in 0..10 {
        first.begin().await;
        tokio::task::yield_now().await;
    }
    assert!(!next.is_finished());
    streams.pop();
    next.await.unwrap().begin().await;
}

/// A store that leads, and panics instead of writing.
#[derive(Debug, Default)]
struct Broken(MemoryStore);

impl Store for Broken {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.0.lead(at_least)
    }

    fn commit(&self, _: Epoch, _: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        async { panic!("records are written in order") }.boxed()
    }
}

/// The server's owner must learn of it, and waiting requests must not wait forever.
#[tokio::test]
async fn a_broken_invariant_ends_the_engine_and_answers_waiters() {
    let server = Server::builder().store(Arc::new(Broken::default())).start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[]).await;
    let xid = client.begin().await;
    let refused = client.ask(register(&xid, 1, "1", 0)).await;
    let Answer::Rejected(rejection) = refused else { panic!("{refused:?}") };
    assert_eq!(rejection.code, "HF-TC-NOT-LEADING");
    let failure = server.ended().await.unwrap_err();
    assert_eq!(failure.code(), "HF-TC-INVARIANT");
    assert!(failure.to_string().contains("records are written in order"), "{failure}");
}
