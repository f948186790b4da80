//! The end of a coordinator with many waiting requests.

use std::collections::BTreeSet;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{ClientFrame, ClientMessage, Hello, ServerFrame};
use handfast_server::admin::model::ServerStatus;
use handfast_test_services::until;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::application::{Application, registration};
use crate::port::Admin;
use crate::serving::Coordinator;

/// Below the limit of concurrent HTTP/2 requests.
const UNARY: u64 = 100;
const STREAMED: u64 = 400;

/// Sends each request in a call of its own.
async fn wait_one_by_one(application: &mut Application) -> JoinSet<Result<(), Status>> {
    let mut waiting = JoinSet::new();
    for _ in 0..UNARY {
        let xid = application.begin("place-order").await;
        let mut client = application.client.clone();
        waiting.spawn(async move {
            client.register_branch(registration(&xid, 8, "2:42", 60_000)).await.map(drop)
        });
    }
    waiting
}

/// Sends all requests on one stream, in the frame after the hello.
async fn wait_together(
    application: &mut Application,
) -> (mpsc::Sender<ClientFrame>, Streaming<ServerFrame>) {
    let hello = Ask::Hello(Hello { client_id: "client-2".to_owned(), ..Hello::default() });
    let mut messages = vec![ClientMessage { id: 1_000, body: Some(hello) }];
    for id in 0..STREAMED {
        let xid = application.begin("place-order").await;
        let ask = Ask::RegisterBranch(registration(&xid, 9, "2:42", 60_000));
        messages.push(ClientMessage { id, body: Some(ask) });
    }
    let (frames, sent) = mpsc::channel(1);
    frames.send(ClientFrame { messages }).await.unwrap();
    let stream = application.client.connect(ReceiverStream::new(sent)).await.unwrap();
    (frames, stream.into_inner())
}

/// Returns the ids of the requests that are refused because of the stop, up to the stream's end.
async fn refused_as_stopping(mut stream: Streaming<ServerFrame>) -> BTreeSet<u64> {
    let mut refused = BTreeSet::new();
    while let Some(frame) = stream.message().await.expect("a clean end") {
        for message in frame.messages {
            if let Some(Answer::Rejected(rejection)) = message.body {
                assert_eq!(rejection.code, "HF-TC-STOPPING");
                assert!(refused.insert(message.id), "{} is answered twice", message.id);
            }
        }
    }
    refused
}

// A waiter without an answer would hold its database locks until its own deadline.
#[tokio::test(flavor = "multi_thread")]
async fn all_waiting_requests_are_refused_at_a_stop() {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let mut application = Application::connect(coordinator.grpc).await;
    let holder = application.begin("place-order").await;
    application.register(&holder, 7, "2:42").await.unwrap();
    let mut waiting = wait_one_by_one(&mut application).await;
    let (_frames, stream) = wait_together(&mut application).await;
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let waiters = usize::try_from(UNARY + STREAMED).unwrap();
    let waiting_now = async || admin.get::<ServerStatus>("/api/v1/status").await.waiters;
    until("all wait", async || waiting_now().await >= waiters).await;
    drop((admin, application));
    coordinator.signal("-TERM");
    while let Some(ended) = waiting.join_next().await {
        let refusal = ended.unwrap().unwrap_err();
        assert_eq!(refusal.metadata().get("handfast-code").unwrap(), "HF-TC-STOPPING");
    }
    assert_eq!(refused_as_stopping(stream).await, (0..STREAMED).collect());
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

// Regression: such a stream delayed every stop to the limit, and the process reported that it was
// cut short.
#[tokio::test(flavor = "multi_thread")]
async fn a_health_watch_does_not_delay_the_stop() {
    let arguments = ["--store", "memory", "--set", "shutdown_limit_ms=60000"];
    let coordinator = Coordinator::start(&arguments);
    let application = Application::connect(coordinator.grpc).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", coordinator.grpc)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut watches = Vec::new();
    for service in ["", "handfast.v1.Coordinator"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        let serving = watch.message().await.unwrap().unwrap().status();
        assert_eq!(serving, ServingStatus::Serving, "{service}");
        watches.push(watch);
    }
    coordinator.signal("-TERM");
    for mut watch in watches {
        let mut told = Vec::new();
        while let Some(answer) = watch.message().await.expect("a clean end") {
            told.push(answer.status());
        }
        assert!(told.contains(&ServingStatus::NotServing), "{told:?}");
        assert!(!told.contains(&ServingStatus::Serving), "{told:?}");
    }
    drop(application);
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}
