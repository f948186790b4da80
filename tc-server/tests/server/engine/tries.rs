//! A try over HTTP while the engine has no room.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, FuturesUnordered, StreamExt};
use handfast_core::{Command, Coordinator, Xid};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_server::clock::WallClock;
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{Engine, EngineError, EngineHandle, EngineResult, Settings};
use handfast_server::grpc::{Bounds, GrpcFrontend};
use handfast_server::over_http::{self, HttpCaller, Participant, Prefix, Secret};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{HeldStore, begin, register, start};
use crate::common::hello;

/// Longer than the first pause between two attempts.
const MEANWHILE: Duration = Duration::from_millis(300);

/// Starts a participant that fails every try, when the test lets it. Returns its prefix.
async fn participant() -> (String, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let prefix = format!("http://{}/", listener.local_addr().unwrap());
    let (tries, tried) = mpsc::unbounded_channel();
    let routes = Router::new().fallback(move || {
        let (answer, answered) = oneshot::channel();
        // The send fails when the test is over.
        drop(tries.send(answer));
        answered.map(|_| StatusCode::INTERNAL_SERVER_ERROR)
    });
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (prefix, tried)
}

fn front(engine: &Engine, prefix: &str) -> GrpcFrontend {
    let settings = dispatch::Settings::default();
    let (dispatcher, _timer) = Dispatcher::prepare(Arc::new(WallClock::start()), settings, 1);
    let (prefix, secret) = (Prefix::parse(prefix).unwrap(), Secret::new(b"known to both"));
    let participants = vec![Participant { prefix, secret }];
    let caller =
        HttpCaller::new(over_http::Settings { participants, ..over_http::Settings::default() });
    let (handle, leadership) = (engine.handle.clone(), engine.leadership.clone());
    GrpcFrontend::new(handle, leadership, dispatcher, Bounds::default(), caller.unwrap())
}

/// Returns a hello and a try in one frame.
fn frame(xid: Xid, resource_id: String) -> wire::ClientFrame {
    let tried = wire::TryBranchRequest {
        xid: format!("tc:{xid}"),
        branch_id: 7,
        resource_id,
        input: b"{}".to_vec(),
        timeout_ms: 5_000,
        traceparent: String::new(),
    };
    let bodies = [Ask::Hello(hello("client", &[])), Ask::TryBranch(tried)];
    let messages = (1..).zip(bodies).map(|(id, body)| wire::ClientMessage { id, body: Some(body) });
    wire::ClientFrame { messages: messages.collect() }
}

/// Sends requests until there is no room, beginning with one that must be written.
async fn crowd(
    engine: &EngineHandle,
    write: Command,
) -> FuturesUnordered<BoxFuture<'static, EngineResult>> {
    let mut asking = FuturesUnordered::new();
    let (mut command, mut refused) = (write, 0);
    // Requests that the engine has not taken yet count for the limit too.
    while refused < 100 {
        let engine = engine.clone();
        let asked = std::mem::replace(&mut command, Command::GetStatus { xid: Xid(1) });
        asking.push(async move { engine.call(asked).await }.boxed());
        let answered = asking.next().now_or_never();
        refused += usize::from(matches!(answered, Some(Some(Err(EngineError::Busy)))));
        tokio::task::yield_now().await;
    }
    asking
}

/// Regression: a try that was called in vain and could not be registered again was refused without
/// a report, and its global could be committed although the try may yet take effect.
#[tokio::test]
async fn a_try_that_is_not_registered_again_is_reported_as_unknown() {
    let (store, mut batches) = HeldStore::new();
    let settings = Settings { queue_max: 1, batch_max: 1, ..Settings::new("tc") };
    let (engine, _effects) = start(store, settings).await;
    let (prefix, mut tries) = participant().await;
    let front = front(&engine, &prefix);
    let (xid, other) = (begin(&engine.handle).await, begin(&engine.handle).await);
    let inbound = stream::iter([Ok(frame(xid, format!("{prefix}debit")))]);
    let inbound = inbound.chain(stream::pending());
    let (reader, mut outbound) = front.serve_connection(inbound, "client".into()).unwrap();
    tokio::spawn(reader);
    outbound.next().await.expect("the greeting").unwrap();
    batches.recv().await.unwrap().verdict.send(Ok(())).unwrap();
    let first = tries.recv().await.unwrap();
    let _asking = crowd(&engine.handle, register(other, 1)).await;
    first.send(()).unwrap();
    let early = timeout(MEANWHILE, outbound.next()).await;
    assert!(early.is_err(), "{early:?} before it was reported");
    tokio::spawn(async move {
        while let Some(batch) = batches.recv().await {
            batch.verdict.send(Ok(())).unwrap();
        }
    });
    // On a slow machine the attempts go on after there is room.
    tokio::spawn(async move { while tries.recv().await.is_some() {} });
    outbound.next().await.expect("the answer").unwrap();
    let look = move |coordinator: &Coordinator| coordinator.global(xid).unwrap();
    let global = engine.handle.view(look).await.unwrap();
    assert!(global.record.rollback_only, "{global:?}");
}
