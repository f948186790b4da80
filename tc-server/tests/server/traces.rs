//! Traces of clients go on into phase two, the questions before it, and the steps of sagas: at a
//! coordinator without spans, and at one whose collector is down.

use handfast_proto::v1 as wire;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_server::config::{Config, TelemetryConfig};
use handfast_server::embedded::{RunningServer, Server};
use handfast_server::serve::{self, ShutdownOutcome};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use wire::client_message::Body as Ask;
use wire::server_message::Body as Answer;
use wire::{Decision, ReplyWhen};

use crate::common::{self, Client, RESOURCE, begin, ending, hello, registration, resource};

const TRANSACTION: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01";
const BRANCH: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-2222222222222222-01";

/// The call of phase two after requests with these texts: one in the message, one in the header.
async fn call_after(transaction: &'static str, branch: &'static str) -> wire::PhaseTwoBranch {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let mut calls = client.subscribe(hello("a", &[RESOURCE])).await.unwrap().into_inner();
    let Ask::Begin(begin) = begin() else { panic!("the request that begins") };
    let begin = wire::BeginRequest { traceparent: transaction.to_owned(), ..begin };
    let xid = client.begin(begin).await.unwrap().into_inner().xid;
    let mut register = Request::new(registration(&xid, 1, "1", 0));
    register.metadata_mut().insert("traceparent", MetadataValue::from_static(branch));
    client.register_branch(register).await.unwrap();
    client.end(ending(&xid, Decision::Commit, ReplyWhen::Decided)).await.unwrap();
    let mut call = calls.message().await.unwrap().unwrap().calls.remove(0);
    call.branches.remove(0)
}

#[tokio::test]
async fn phase_two_is_called_with_the_places_of_the_clients_spans() {
    let call = call_after(TRANSACTION, BRANCH).await;
    assert_eq!((&*call.traceparent, &*call.branch_traceparent), (TRANSACTION, BRANCH));
}

#[tokio::test]
async fn a_text_that_names_no_sampled_span_is_left_out() {
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-00";
    for (transaction, branch) in [("", "none"), (unsampled, "00-0-0-01"), ("x", unsampled)] {
        let call = call_after(transaction, branch).await;
        assert_eq!((&*call.traceparent, &*call.branch_traceparent), ("", ""));
    }
}

/// A client that serves the resource in a mode besides.
async fn client_in(server: &RunningServer, mode: wire::Mode) -> Client {
    let mut client = Client::connect(server, "a", &[]).await;
    let resources = vec![wire::Resource { mode: mode.into(), ..resource(RESOURCE) }];
    let register = wire::RegisterResources { resources };
    client.ask(Ask::RegisterResources(register)).await;
    client
}

#[tokio::test]
async fn a_step_is_called_with_the_place_of_the_span_that_started_its_saga() {
    for (traceparent, told) in [(TRANSACTION, TRANSACTION), ("none", "")] {
        let server = Server::builder().start().await.unwrap();
        let mut client = client_in(&server, wire::Mode::Saga).await;
        let step = wire::SagaStep {
            name: "deduct".to_owned(),
            kind: wire::SagaStepKind::Compensable.into(),
            resource_id: RESOURCE.to_owned(),
            action: "deduct".to_owned(),
            ..wire::SagaStep::default()
        };
        let definition = wire::SagaDefinition {
            name: "place-order".to_owned(),
            steps: vec![step],
            ..wire::SagaDefinition::default()
        };
        let start = wire::StartSagaRequest {
            key: "order-42".to_owned(),
            definition: Some(definition),
            traceparent: traceparent.to_owned(),
            ..wire::StartSagaRequest::default()
        };
        let answer = client.ask(Ask::StartSaga(start)).await;
        assert!(matches!(answer, Answer::Saga(_)), "{answer:?}");
        let call = client.call().await.branches.remove(0);
        assert_eq!((&*call.traceparent, &*call.branch_traceparent), (told, ""));
    }
}

#[tokio::test]
async fn a_question_before_a_commit_has_the_places_of_its_request_and_its_branch() {
    let server = Server::builder().start().await.unwrap();
    let mut client = client_in(&server, wire::Mode::TwoPhase).await;
    let xid = client.begin().await;
    let register = wire::RegisterBranchRequest {
        mode: wire::Mode::TwoPhase.into(),
        rows: Vec::new(),
        traceparent: BRANCH.to_owned(),
        ..registration(&xid, 1, "1", 0)
    };
    client.ask(Ask::RegisterBranch(register)).await;
    let commit = wire::EndRequest {
        traceparent: TRANSACTION.to_owned(),
        ..ending(&xid, Decision::Commit, ReplyWhen::Decided)
    };
    client.send(Ask::End(commit)).await;
    let mut call = client.call().await;
    assert_eq!(call.question(), wire::Question::Prepare);
    let call = call.branches.remove(0);
    assert_eq!((&*call.traceparent, &*call.branch_traceparent), (TRANSACTION, BRANCH));
}

/// The spans are lost and counted. Requests, phase two and shutdown do not wait for the collector.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_costs_spans_and_nothing_else() {
    let telemetry = TelemetryConfig {
        otlp_endpoint: Some("http://127.0.0.1:1".to_owned()),
        timeout_ms: 200,
        ..TelemetryConfig::default()
    };
    let server = serve::Server::start(Config { telemetry, ..Config::tiny() }).await.unwrap();
    let address = format!("http://{}", server.grpc_address);
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = CoordinatorClient::new(channel);
    let mut calls = client.subscribe(hello("a", &[RESOURCE])).await.unwrap().into_inner();
    let Ask::Begin(begin) = begin() else { panic!("the request that begins") };
    let begin = wire::BeginRequest { traceparent: TRANSACTION.to_owned(), ..begin };
    let xid = client.begin(begin).await.unwrap().into_inner().xid;
    client.register_branch(registration(&xid, 1, "1", 0)).await.unwrap();
    client.end(ending(&xid, Decision::Commit, ReplyWhen::Decided)).await.unwrap();
    let call = calls.message().await.unwrap().unwrap().calls.remove(0).branches.remove(0);
    let [trace, own] = [3..35, 36..52].map(|part| call.traceparent[part].to_owned());
    assert_eq!((&*trace, own == TRANSACTION[36..52]), (&TRANSACTION[3..35], false));
    drop((calls, client));
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    let shown = handfast_server::metrics::recorder().render();
    let failed =
        shown.lines().find(|line| line.contains("handfast_spans_total{result=\"failed\"}"));
    assert!(failed.is_some_and(|line| !line.ends_with(" 0")), "{failed:?}");
}
