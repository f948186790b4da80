//! The stream over a real socket: every message, waits, grants, deadlock, reconnect, shutdown.

use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::embedded::{RunningServer, Server};
use handfast_test_services::until;
use wire::rejection::Detail;
use wire::{Decision, GlobalStatus, ReplyWhen, RollbackReason};

use crate::common::{self, Client, RESOURCE, begin, end, outcome, register};

async fn server() -> RunningServer {
    Server::builder().start().await.unwrap()
}

fn status(answer: Answer) -> (GlobalStatus, RollbackReason) {
    if let Answer::GetStatus(reply) = answer {
        return (reply.status(), reply.rollback_reason());
    }
    let Answer::End(reply) = answer else { panic!("{answer:?}") };
    (reply.status(), reply.rollback_reason())
}

fn rejection(answer: Answer) -> wire::Rejection {
    let Answer::Rejected(rejection) = answer else { panic!("{answer:?}") };
    rejection
}

async fn ask_status(client: &mut Client, xid: &str) -> (GlobalStatus, RollbackReason) {
    let request = wire::GetStatusRequest { xid: xid.to_owned() };
    status(client.ask(Ask::GetStatus(request)).await)
}

#[tokio::test]
async fn a_global_is_committed_and_its_branch_is_called() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = client.begin().await;
    assert!(xid.starts_with(&format!("{}:", server.address())), "{xid}");
    client.register(&xid, 7, "1").await;
    let report = wire::ReportBranchRequest {
        xid: xid.clone(),
        branch_id: 7,
        outcome: wire::PhaseOneOutcome::Done.into(),
    };
    assert!(matches!(client.ask(Ask::ReportBranch(report)).await, Answer::ReportBranch(_)));

    let finished = client.send(end(&xid, Decision::Commit, ReplyWhen::Finished)).await;
    let call = client.call().await;
    assert_eq!((call.resource_id.as_str(), call.decision()), (RESOURCE, Decision::Commit));
    assert_eq!(call.branches[0].xid, xid);
    assert_eq!(call.branches[0].application_data, b"data");
    client.finish(&call).await;
    assert_eq!(status(client.answer(finished).await).0, GlobalStatus::Committed);
    assert_eq!(ask_status(&mut client, &xid).await.0, GlobalStatus::Committed);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_waiting_registration_is_granted_when_the_row_is_released() {
    let server = server().await;
    let mut holder = Client::connect(&server, "a", &[RESOURCE]).await;
    let mut waiter = Client::connect(&server, "b", &[RESOURCE]).await;
    let (first, second) = (holder.begin().await, waiter.begin().await);
    let token = holder.register(&first, 1, "1").await;

    let refused = rejection(waiter.ask(register(&second, 2, "1", 0)).await);
    assert_eq!(refused.code, "HF-TC-ROW-LOCKED");
    let Some(Detail::RowLocked(row)) = refused.detail else { panic!("{refused:?}") };
    assert_eq!((row.xid, row.table), (first.clone(), "orders".to_owned()));

    let waiting = waiter.send(register(&second, 2, "1", 60_000)).await;
    // Answered in order: the registration before it waits.
    ask_status(&mut waiter, &second).await;
    assert!(!waiter.has_arrived(waiting));
    holder.ask(end(&first, Decision::Commit, ReplyWhen::Decided)).await;
    let answer = waiter.answer(waiting).await;
    let Answer::RegisterBranch(reply) = answer else { panic!("{answer:?}") };
    assert!(reply.fencing_token > token)
}

#[tokio::test]
async fn a_lock_check_waits_for_the_holder() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = client.begin().await;
    client.register(&xid, 1, "1").await;
    let registration = common::registration(&xid, 1, "1", 60_000);
    let check = Ask::CheckLocks(wire::CheckLocksRequest {
        xid: String::new(),
        resource_id: RESOURCE.to_owned(),
        rows: registration.rows,
        wait: registration.wait,
    });
    let checking = client.send(check).await;
    client.ask(end(&xid, Decision::Commit, ReplyWhen::Decided)).await;
    assert!(matches!(client.answer(checking).await, Answer::CheckLocks(_)));
}

#[tokio::test]
async fn a_request_that_closes_a_cycle_is_refused() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let (first, second) = (client.begin().await, client.begin().await);
    client.register(&first, 1, "1").await;
    client.register(&second, 2, "2").await;
    client.send(register(&first, 3, "2", 60_000)).await;
    let refused = rejection(client.ask(register(&second, 4, "1", 60_000)).await);
    assert_eq!(refused.code, "HF-TC-DEADLOCK");
    let Some(Detail::Deadlock(cycle)) = refused.detail else { panic!("{refused:?}") };
    assert_eq!(cycle.xids, [second, first]);
}

#[tokio::test]
async fn waiting_requests_of_a_dead_client_are_removed() {
    let server = server().await;
    let mut holder = Client::connect(&server, "a", &[]).await;
    let xid = holder.begin().await;
    holder.register(&xid, 1, "1").await;
    let mut dying = Client::connect(&server, "b", &[]).await;
    let other = dying.begin().await;
    dying.send(register(&other, 2, "1", 60_000)).await;
    ask_status(&mut dying, &other).await;
    let waiters = || server.engine().view(|coordinator| coordinator.counts().waiters);
    assert_eq!(waiters().await.unwrap(), 1);
    drop(dying);
    until("nothing waits", async || waiters().await.unwrap() == 0).await;
}

#[tokio::test]
async fn a_second_decision_and_a_late_registration_are_refused() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[]).await;
    let xid = client.begin().await;
    client.register(&xid, 1, "1").await;
    let decided = client.ask(end(&xid, Decision::RollBack, ReplyWhen::Decided)).await;
    assert_eq!(status(decided), (GlobalStatus::RollingBack, RollbackReason::Requested));
    for request in [end(&xid, Decision::Commit, ReplyWhen::Decided), register(&xid, 2, "2", 0)] {
        let refused = rejection(client.ask(request).await);
        assert_eq!(refused.code, "HF-TC-ALREADY-DECIDED");
        let Some(Detail::AlreadyDecided(decided)) = refused.detail else { panic!("{refused:?}") };
        assert_eq!(decided.status(), GlobalStatus::RollingBack);
    }
    let unknown = register(&format!("{}:12345", server.address()), 2, "2", 0);
    assert_eq!(rejection(client.ask(unknown).await).code, "HF-TC-UNKNOWN-XID");
}

#[tokio::test]
async fn a_failed_call_goes_to_the_reconnected_process() {
    let server = Server::builder()
        .dispatch(handfast_server::dispatch::Settings {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 1,
            ..Default::default()
        })
        .start()
        .await
        .unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = client.begin().await;
    client.register(&xid, 1, "1").await;
    client.ask(end(&xid, Decision::RollBack, ReplyWhen::Decided)).await;
    client.call().await;
    drop(client);

    let mut client = Client::connect(&server, "a", &[]).await;
    let resources = wire::RegisterResources { resources: vec![common::resource(RESOURCE)] };
    let registered = client.ask(Ask::RegisterResources(resources)).await;
    assert!(matches!(registered, Answer::RegisterResources(_)));
    let call = client.call().await;
    let retryable = || {
        wire::branch_outcome::Result::Retryable(wire::Retryable { error: "no database".to_owned() })
    };
    client.send(Ask::Finished(outcome(&call, retryable))).await;
    let again = client.call().await;
    assert_eq!(again.branches, call.branches);
    let finished = client.send(end(&xid, Decision::RollBack, ReplyWhen::Finished)).await;
    client.finish(&again).await;
    assert_eq!(status(client.answer(finished).await).0, GlobalStatus::RolledBack);
}

/// A client connects to several addresses at a time, which may all be this server, and drops all
/// connections but one.
#[tokio::test]
async fn the_surviving_connection_of_a_process_is_called() {
    let server = server().await;
    let mut stays = Client::connect(&server, "a", &[RESOURCE]).await;
    // The later connection gets the calls first.
    let loses = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = stays.begin().await;
    stays.register(&xid, 1, "1").await;
    stays.ask(end(&xid, Decision::Commit, ReplyWhen::Decided)).await;
    drop(loses);
    let call = stays.call().await;
    assert_eq!(call.branches[0].xid, xid);
}

/// The client library checks in this way that the server is alive while other requests wait.
#[tokio::test]
async fn an_empty_registration_is_answered_at_once() {
    let server = server().await;
    let mut holder = Client::connect(&server, "a", &[RESOURCE]).await;
    let mut waiter = Client::connect(&server, "b", &[RESOURCE]).await;
    let (first, second) = (holder.begin().await, waiter.begin().await);
    holder.register(&first, 1, "1").await;
    let waiting = waiter.send(register(&second, 2, "1", 60_000)).await;
    let nothing = wire::RegisterResources { resources: Vec::new() };
    let answer = waiter.ask(Ask::RegisterResources(nothing)).await;
    assert!(matches!(answer, Answer::RegisterResources(_)), "{answer:?}");
    assert!(!waiter.has_arrived(waiting));
}

#[tokio::test]
async fn a_refused_branch_needs_an_operator() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let xid = client.begin().await;
    client.register(&xid, 1, "1").await;
    let finished = client.send(end(&xid, Decision::RollBack, ReplyWhen::Finished)).await;
    let call = client.call().await;
    let refused = || {
        wire::branch_outcome::Result::Refused(wire::Refused {
            error: "dirty write".to_owned(),
            rows: vec![wire::DirtyRow::default(); 1_000],
            ..wire::Refused::default()
        })
    };
    client.send(Ask::Finished(outcome(&call, refused))).await;
    assert_eq!(status(client.answer(finished).await).0, GlobalStatus::NeedsOperator);
}

/// Regression: a request that waited behind a dirty row was answered with a timeout.
#[tokio::test]
async fn a_row_that_needs_an_operator_is_refused_with_its_holder() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let mut waiter = Client::connect(&server, "b", &[RESOURCE]).await;
    let (stuck, wanted) = (client.begin().await, waiter.begin().await);
    client.register(&stuck, 1, "1").await;
    let waiting = waiter.send(register(&wanted, 2, "1", 60_000)).await;
    // Answered in order: the registration before it waits.
    ask_status(&mut waiter, &wanted).await;
    client.send(end(&stuck, Decision::RollBack, ReplyWhen::Finished)).await;
    let call = client.call().await;
    let refused = || wire::branch_outcome::Result::Refused(wire::Refused::default());
    client.send(Ask::Finished(outcome(&call, refused))).await;
    let waited = rejection(waiter.answer(waiting).await);
    let late = rejection(waiter.ask(register(&wanted, 3, "1", 60_000)).await);
    for refused in [waited, late] {
        assert_eq!(refused.code, "HF-TC-ROW-NEEDS-OPERATOR");
        assert!(refused.message.contains(&format!("handfast tx show {stuck}")), "{refused:?}");
        let Some(Detail::RowNeedsOperator(row)) = refused.detail else { panic!("{refused:?}") };
        assert_eq!(
            (row.xid, row.table, row.key),
            (stuck.clone(), "orders".to_owned(), b"1:1".into())
        );
    }
}

#[tokio::test]
async fn a_frame_of_many_requests_is_answered_one_by_one() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[]).await;
    let messages =
        (1..=1_000).map(|id| wire::ClientMessage { id: 1_000 + id, body: Some(begin()) });
    client.send_frame(messages.collect()).await;
    for id in 1..=1_000 {
        assert!(matches!(client.answer(1_000 + id).await, Answer::Begin(_)));
    }
}

#[tokio::test]
async fn the_stream_ends_after_the_last_answer() {
    let server = server().await;
    let mut client = common::unary(&server).await;
    let messages = vec![
        wire::ClientMessage { id: 1, body: Some(Ask::Hello(common::hello("a", &[]))) },
        wire::ClientMessage { id: 2, body: Some(begin()) },
    ];
    let frames = tokio_stream::iter([wire::ClientFrame { messages }]);
    let mut from = client.connect(frames).await.unwrap().into_inner();
    let mut ids = Vec::new();
    while let Some(frame) = from.message().await.unwrap() {
        ids.extend(frame.messages.iter().map(|message| message.id));
    }
    assert_eq!(ids, [1, 2]);
}

#[tokio::test]
async fn a_stopping_server_notifies_clients_and_ends_streams() {
    let server = server().await;
    let mut client = Client::connect(&server, "a", &[]).await;
    let first = client.begin().await;
    client.register(&first, 1, "1").await;
    let second = client.begin().await;
    let waiting = client.send(register(&second, 2, "1", 60_000)).await;
    ask_status(&mut client, &second).await;
    let stopping = tokio::spawn(server.stop());
    client.go_away().await;
    assert_eq!(rejection(client.answer(waiting).await).code, "HF-TC-STOPPING");
    client.end().await.unwrap();
    stopping.await.unwrap().unwrap();
}
