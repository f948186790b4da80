//! Unary calls, subscriptions, health, and input that is too large or malformed.

use std::time::Duration;

use handfast_core::XidText;
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::dispatch::NewProcess;
use handfast_server::embedded::Server;
use handfast_server::grpc::Bounds;
use handfast_test_services::until;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wire::{Decision, GlobalStatus, ReplyWhen};

use crate::common::{self, Client, RESOURCE, begin, ending, hello, registration};

fn begin_request() -> wire::BeginRequest {
    let answer = begin();
    let Ask::Begin(request) = answer else { panic!("{answer:?}") };
    request
}

/// Returns the stable code, which must be in the metadata both as text and in the message.
fn code(status: &Status) -> String {
    let text = status.metadata().get("handfast-code").unwrap().to_str().unwrap().to_owned();
    let bytes = status.metadata().get_bin("handfast-rejection-bin").unwrap().to_bytes().unwrap();
    assert_eq!(wire::Rejection::decode(bytes).unwrap().code, text);
    text
}

#[tokio::test]
async fn a_global_runs_over_unary_calls_and_a_subscription() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let subscription = hello("a", &[RESOURCE]);
    let mut calls = client.subscribe(subscription).await.unwrap().into_inner();
    let xid = client.begin(begin_request()).await.unwrap().into_inner().xid;
    let registered = client.register_branch(registration(&xid, 1, "1", 0)).await.unwrap();
    assert!(registered.into_inner().fencing_token > 0);
    let report = wire::ReportBranchRequest {
        xid: xid.clone(),
        branch_id: 1,
        outcome: wire::PhaseOneOutcome::Done.into(),
    };
    client.report_branch(report).await.unwrap();
    let ended = client.end(ending(&xid, Decision::Commit, ReplyWhen::Decided)).await.unwrap();
    assert_eq!(ended.into_inner().status(), GlobalStatus::Committing);
    let call = calls.message().await.unwrap().unwrap().calls.remove(0);
    let answer = |client_id: &str| wire::FinishPhaseTwoRequest {
        outcome: Some(common::done(&call)),
        client_id: client_id.to_owned(),
    };
    let unnamed = client.finish_phase_two(answer("")).await.unwrap_err();
    assert_eq!(code(&unnamed), "HF-TC-BAD-REQUEST");
    // The answer of a process that cannot have executed the call must not count, or the undo of a
    // branch would be lost.
    let _other = client.subscribe(hello("b", &["sqlite:stock"])).await.unwrap();
    for other in ["b", "c"] {
        client.finish_phase_two(answer(other)).await.unwrap();
        assert_eq!(server.dispatcher().loads()[0].in_flight, 1, "{other} may not answer");
    }
    client.finish_phase_two(answer("a")).await.unwrap();
    let request = wire::GetStatusRequest { xid };
    let status = client.get_status(request).await.unwrap().into_inner().status();
    assert_eq!(status, GlobalStatus::Committed);
    assert_eq!(server.dispatcher().loads()[0].in_flight, 0);
}

#[tokio::test]
async fn a_refusal_is_a_status_with_its_code() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let first = client.begin(begin_request()).await.unwrap().into_inner().xid;
    let second = client.begin(begin_request()).await.unwrap().into_inner().xid;
    client.register_branch(registration(&first, 1, "1", 0)).await.unwrap();

    let locked = client.register_branch(registration(&second, 2, "1", 0)).await.unwrap_err();
    assert_eq!((locked.code(), code(&locked).as_str()), (Code::Aborted, "HF-TC-ROW-LOCKED"));
    let unknown = client.register_branch(registration("tc:1", 2, "1", 0)).await.unwrap_err();
    assert_eq!((unknown.code(), code(&unknown).as_str()), (Code::NotFound, "HF-TC-UNKNOWN-XID"));
    client.end(ending(&first, Decision::Commit, ReplyWhen::Decided)).await.unwrap();
    let decided = client.end(ending(&first, Decision::RollBack, ReplyWhen::Decided)).await;
    let decided = decided.unwrap_err();
    assert_eq!(code(&decided), "HF-TC-ALREADY-DECIDED");
    assert_eq!(decided.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_cancelled_call_gives_up_its_place_in_the_queue() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let first = client.begin(begin_request()).await.unwrap().into_inner().xid;
    let second = client.begin(begin_request()).await.unwrap().into_inner().xid;
    client.register_branch(registration(&first, 1, "1", 0)).await.unwrap();
    let waiters = || server.engine().view(|coordinator| coordinator.counts().waiters);
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.register_branch(registration(&second, 2, "1", 60_000)).await }
    });
    until("the registration waits", async || waiters().await.unwrap() > 0).await;
    waiting.abort();
    until("nothing waits", async || waiters().await.unwrap() == 0).await;
}

#[tokio::test]
async fn a_deadline_of_the_caller_is_kept() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let first = client.begin(begin_request()).await.unwrap().into_inner().xid;
    let second = client.begin(begin_request()).await.unwrap().into_inner().xid;
    client.register_branch(registration(&first, 1, "1", 0)).await.unwrap();
    let mut request = Request::new(registration(&second, 2, "1", 60_000));
    request.set_timeout(Duration::from_millis(20));
    let status = client.register_branch(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status:?}");
}

#[tokio::test]
async fn a_request_past_a_bound_is_refused_by_name() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let xid = client.begin(begin_request()).await.unwrap().into_inner().xid;
    let good = registration(&xid, 1, "1", 0);
    let with = |change: fn(&mut wire::RegisterBranchRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let large = "HF-TC-TOO-LARGE";
    let bad = "HF-TC-BAD-REQUEST";
    for (request, code_expected, field) in [
        (with(|r| r.application_data = vec![0; 65_537]), large, "application_data"),
        (with(|r| r.resource_id = "x".repeat(1_025)), large, "resource_id"),
        (with(|r| r.rows[0].keys = vec![vec![0]; 10_001]), large, "rows"),
        (with(|r| r.rows[0].keys = vec![vec![0; 8_193]]), large, "row key"),
        (with(|r| r.rows[0].table = "x".repeat(1_025)), large, "table"),
        (with(|r| r.branch_id = 0), bad, "branch id 0"),
        (with(|r| r.branch_id = 1 << 63), bad, "branch id"),
        (with(|r| r.mode = 99), bad, "mode"),
        (with(|r| r.rows[0].mode = 99), bad, "lock mode"),
        (with(|r| r.resource_id.clear()), bad, "resource_id"),
        (with(|r| r.xid = "no xid".to_owned()), bad, "no xid"),
        (with(|r| r.wait.as_mut().unwrap().holding = 9), bad, "holding"),
    ] {
        let status = client.register_branch(request).await.unwrap_err();
        assert_eq!((status.code(), code(&status).as_str()), (Code::InvalidArgument, code_expected));
        assert!(status.message().contains(field), "{field}: {}", status.message());
    }
    client.register_branch(good).await.unwrap();
}

#[tokio::test]
async fn oversized_and_malformed_messages_are_refused() {
    let bounds = Bounds { message_bytes_max: 10_000, ..Bounds::default() };
    let server = Server::builder().bounds(bounds).start().await.unwrap();
    let mut client = common::unary(&server).await;
    let large = registration("tc:1", 1, &"x".repeat(20_000), 0);
    assert_eq!(client.register_branch(large).await.unwrap_err().code(), Code::OutOfRange);

    // A message of another type: field 1 of a begin is text, and here it is a number.
    let mut raw = tonic::client::Grpc::new(common::channel(&server).await);
    raw.ready().await.unwrap();
    let path = PathAndQuery::from_static("/handfast.v1.Coordinator/Begin");
    let codec = tonic_prost::ProstCodec::<wire::Done, wire::BeginReply>::default();
    let ok = raw.unary(Request::new(wire::Done {}), path, codec).await;
    assert!(ok.is_ok(), "an empty message is a begin without names: {ok:?}");
    raw.ready().await.unwrap();
    let path = PathAndQuery::from_static("/handfast.v1.Coordinator/Begin");
    let garbage = wire::RegisterBranchReply { fencing_token: 7, decides: false };
    let codec = tonic_prost::ProstCodec::<wire::RegisterBranchReply, wire::BeginReply>::default();
    let status = raw.unary(Request::new(garbage), path, codec).await.unwrap_err();
    assert!(matches!(status.code(), Code::Internal | Code::InvalidArgument), "{status:?}");

    let mut other = common::unary(&server).await;
    other.begin(begin_request()).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_breaks_the_protocol_ends_with_a_status() {
    let server = Server::builder().start().await.unwrap();
    let mut silent = Client::silent(&server).await;
    silent.send(begin()).await;
    let status = silent.end().await.unwrap_err();
    assert_eq!(
        (status.code(), code(&status).as_str()),
        (Code::InvalidArgument, "HF-TC-BAD-REQUEST")
    );

    let mut client = Client::connect(&server, "a", &[]).await;
    let message = wire::ClientMessage { id: 1, body: Some(begin()) };
    client.send_frame(vec![message; 1_025]).await;
    let status = client.end().await.unwrap_err();
    assert_eq!((status.code(), code(&status).as_str()), (Code::InvalidArgument, "HF-TC-TOO-LARGE"));
}

#[tokio::test]
async fn a_bad_message_on_a_stream_is_refused_alone() {
    let server = Server::builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[]).await;
    let bad = wire::GetStatusRequest { xid: "no xid".to_owned() };
    for body in [Ask::GetStatus(bad), Ask::Hello(hello("a", &[]))] {
        let answer = client.ask(body).await;
        let Answer::Rejected(rejection) = answer else { panic!("{answer:?}") };
        assert_eq!(rejection.code, "HF-TC-BAD-REQUEST")
    }
    client.begin().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let bounds = Bounds { queue_messages_max: 10, ..Bounds::default() };
    let server = Server::builder().bounds(bounds).start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[]).await;
    // More at once than the queue may hold, even if the reader reads meanwhile.
    let message = wire::ClientMessage { id: 1, body: Some(begin()) };
    client.send_frame(vec![message; 1_000]).await;
    let status = client.end().await.unwrap_err();
    assert_eq!(code(&status), "HF-TC-SLOW-READER");
    until("it has left", async || server.dispatcher().processes().is_empty()).await;
}

#[tokio::test]
async fn connected_processes_are_shown_until_they_disconnect() {
    let server = Server::builder().start().await.unwrap();
    let client = Client::connect(&server, "a", &[RESOURCE]).await;
    let views = server.dispatcher().processes();
    let [view] = &views[..] else { panic!("{views:?}") };
    let NewProcess { client_id, application, agent, peer } = &view.process;
    assert_eq!((&**client_id, &**application, &**agent), ("a", "order-service", "test"));
    assert!(peer.starts_with("127.0.0.1:"), "{peer}");
    assert_eq!(&*view.resources[0].key.id, RESOURCE);
    drop(client);
    until("it has left", async || server.dispatcher().processes().is_empty()).await;
}

#[tokio::test]
async fn health_follows_the_coordinator() {
    let server = Server::builder().start().await.unwrap();
    let mut health = HealthClient::new(common::channel(&server).await);
    let service = "handfast.v1.Coordinator".to_owned();
    let mut watched =
        health.watch(HealthCheckRequest { service: service.clone() }).await.unwrap().into_inner();
    loop {
        let status = watched.message().await.unwrap().unwrap().status();
        if status == ServingStatus::Serving {
            break;
        }
    }
    let stopping = tokio::spawn(server.stop());
    let mut last = ServingStatus::Serving;
    while let Some(told) = watched.message().await.expect("a clean end") {
        last = told.status();
    }
    assert_eq!(last, ServingStatus::NotServing);
    stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_crashed_coordinator_continues_from_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Server::builder().directory(directory.path()).advertise("tc");
    let server = builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let committed = client.begin(begin_request()).await.unwrap().into_inner().xid;
    client.register_branch(registration(&committed, 1, "1", 0)).await.unwrap();
    client.end(ending(&committed, Decision::Commit, ReplyWhen::Decided)).await.unwrap();
    let active = client.begin(begin_request()).await.unwrap().into_inner().xid;
    client.register_branch(registration(&active, 2, "2", 0)).await.unwrap();
    server.crash().await;

    let server = builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let call = client.call().await;
    assert_eq!((call.decision(), &call.branches[0].xid), (Decision::Commit, &committed));
    client.finish(&call).await;
    let epoch = |xid: &str| XidText::parse(xid).unwrap().xid.0 >> 40;
    assert!(epoch(&client.begin().await) > epoch(&active));
    // The repeated registration finds its branch, and another global still finds the row locked.
    client.register(&active, 2, "2").await;
    let other = client.begin().await;
    let answer = client.ask(common::register(&other, 3, "2", 0)).await;
    let Answer::Rejected(rejection) = answer else { panic!("{answer:?}") };
    assert_eq!(rejection.code, "HF-TC-ROW-LOCKED");
    server.stop().await.unwrap();
}
