//! The greeting of a client that comes while no leader is known.

use std::pin::pin;
use std::sync::Arc;

use futures::future::FutureExt;
use futures::stream::{self, StreamExt};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::clock::WallClock;
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{Engine, Leadership};
use handfast_server::grpc::{Bounds, GrpcFrontend};
use handfast_server::over_http::HttpCaller;
use handfast_server::store::Leader;

use super::leadership::{SharedStore, elsewhere, launch, until};
use crate::common::hello;

fn front(engine: &Engine) -> GrpcFrontend {
    let settings = dispatch::Settings::default();
    let (dispatcher, _timer) = Dispatcher::prepare(Arc::new(WallClock::start()), settings, 1);
    let (handle, leadership) = (engine.handle.clone(), engine.leadership.clone());
    GrpcFrontend::new(handle, leadership, dispatcher, Bounds::default(), HttpCaller::disabled())
}

/// Returns the first answer to a hello that a client says before `settle`.
async fn answer_after(settle: impl AsyncFnOnce(&SharedStore, &mut Engine)) -> Answer {
    let store = SharedStore::new(Leader::Unknown, None);
    let mut engine = launch(&store);
    let front = front(&engine);
    let watcher = tokio::spawn(front.clone().keep_watch());
    let message = wire::ClientMessage { id: 1, body: Some(Ask::Hello(hello("client", &[]))) };
    let frames = [Ok(wire::ClientFrame { messages: vec![message] })];
    let inbound = stream::iter(frames).chain(stream::pending());
    let (reader, mut outbound) = front.serve_connection(inbound, "client".into()).unwrap();
    let mut reader = pin!(reader);
    assert!(reader.as_mut().now_or_never().is_none());
    assert!(outbound.next().now_or_never().is_none(), "the client waits");
    settle(&store, &mut engine).await;
    let frame = tokio::select! {
        frame = outbound.next() => frame,
        // What is queued is still written when the reader has ended.
        () = reader => outbound.next().await,
    };
    watcher.abort();
    let frame = frame.expect("there is an answer").unwrap();
    frame.messages.into_iter().next().unwrap().body.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_during_a_change_of_the_leader_is_greeted_by_the_next() {
    let answer = answer_after(async |store, engine| {
        store.leader.send_replace(Leader::Here);
        engine.until_leading().await.unwrap();
    });
    let answer = answer.await;
    assert!(matches!(answer, Answer::Hello(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_during_a_change_of_the_leader_is_sent_to_the_next() {
    let answer = answer_after(async |store, engine| {
        store.leader.send_replace(elsewhere());
        until(engine, |it| it.leader_elsewhere().is_some()).await;
    });
    let Answer::GoAway(notice) = answer.await else { panic!("no notice") };
    assert_eq!((&*notice.leader, notice.epoch), ("tc-2:7091", 7));
}

/// The paused clock moves on when nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_client_is_told_after_a_while_that_no_leader_is_known() {
    let Answer::GoAway(notice) = answer_after(async |_, _| {}).await else { panic!("no notice") };
    assert_eq!((&*notice.leader, notice.epoch), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_sent_away_when_the_engine_ends() {
    let answer = answer_after(async |_, engine| {
        engine.handle.stop();
        until(engine, |it| *it == Leadership::Ended).await;
    });
    let Answer::GoAway(notice) = answer.await else { panic!("no notice") };
    assert_eq!((&*notice.leader, notice.epoch), ("", 0));
}
