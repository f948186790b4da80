//! Reports of relays of outboxes, as the coordinator shows them, and the actions that it hands on.

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{
    ClientFrame, ClientMessage, Hello, OutboxActionResult, OutboxLane, OutboxVerb, ParkedEvent,
    ReportOutboxReply, ReportOutboxRequest, ServerFrame,
};
use handfast_server::admin::model::{EventOutcome, EventPage, EventReply, ServerStatus};
use handfast_test_services::until_some;
use http::{Method, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::port::{Admin, TokensFile, roomy, start, start_with};
use crate::serving::Coordinator;

const PARKED_AT_MS: u64 = 1_795_239_045_678;

/// The stream of a process with relays.
pub(crate) struct RelayProcess {
    to: mpsc::Sender<ClientFrame>,
    from: Streaming<ServerFrame>,
    id_last: u64,
}

impl RelayProcess {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let (to, frames) = mpsc::channel(16);
        let mut client = CoordinatorClient::new(endpoint.connect().await.unwrap());
        let from = client.connect(ReceiverStream::new(frames)).await.unwrap().into_inner();
        let mut process = Self { to, from, id_last: 0 };
        let hello = Hello {
            client_id: "relays".to_owned(),
            application: "shop".to_owned(),
            ..Hello::default()
        };
        let id = process.send(Ask::Hello(hello)).await;
        assert!(matches!(process.answer(id).await, Answer::Hello(_)));
        process
    }

    async fn send(&mut self, body: Ask) -> u64 {
        self.id_last += 1;
        let messages = vec![ClientMessage { id: self.id_last, body: Some(body) }];
        self.to.send(ClientFrame { messages }).await.unwrap();
        self.id_last
    }

    async fn answer(&mut self, id: u64) -> Answer {
        loop {
            let frame = self.from.message().await.unwrap().expect("the stream goes on");
            let found = frame.messages.into_iter().find(|message| message.id == id);
            if let Some(body) = found.and_then(|message| message.body) {
                return body;
            }
        }
    }

    /// Sends a report, whose answer is kept back.
    pub(crate) async fn report(&mut self, report: ReportOutboxRequest) -> u64 {
        self.send(Ask::ReportOutbox(report)).await
    }

    /// Waits for the answer to a report.
    async fn reply(&mut self, id: u64) -> ReportOutboxReply {
        let answer = self.answer(id).await;
        let Answer::ReportOutbox(reply) = answer else { panic!("{answer:?}") };
        reply
    }
}

/// A report of parked events, each of a key of its own.
pub(crate) fn parked(events: &[&str]) -> ReportOutboxRequest {
    let event = |(at, event): (usize, &&str)| ParkedEvent {
        event: (*event).to_owned(),
        topic: "orders".to_owned(),
        key: format!("order-{at}"),
        error: "<b>no such topic</b>".to_owned(),
        attempts: 10,
        parked_at_ms: PARKED_AT_MS + at as u64,
        emitted_at_ms: PARKED_AT_MS - 1_000,
        xid: String::new(),
    };
    let lane = |lane: u32, parked: usize| OutboxLane {
        lane,
        held: 1,
        new_events: 2,
        parked: parked as u64,
        oldest_new_at_ms: PARKED_AT_MS,
    };
    ReportOutboxRequest {
        outbox: "orders-db".to_owned(),
        relay: "relay-1".to_owned(),
        lanes: vec![lane(3, events.len()), OutboxLane { lane: 4, ..OutboxLane::default() }],
        parked: events.iter().enumerate().map(event).collect(),
        wait_ms: 60_000,
        ..ReportOutboxRequest::default()
    }
}

async fn listed(admin: &Admin, query: &str) -> EventPage {
    admin.get(&format!("/api/v1/events{query}")).await
}

/// Waits until relays report.
async fn seen(admin: &Admin) -> EventPage {
    until_some("a relay reports", async || {
        let page = listed(admin, "").await;
        (!page.relays.is_empty()).then_some(page)
    })
    .await
}

#[tokio::test]
async fn parked_events_are_listed_by_filters_and_pages() {
    let (server, admin, _application) = start().await;
    assert_eq!(listed(&admin, "").await, EventPage { relays: vec![], items: vec![], next: None });
    let mut process = RelayProcess::connect(server.grpc_address).await;
    process.report(parked(&["e-0", "e-1", "e-2"])).await;
    let page = seen(&admin).await;
    let [relay] = &*page.relays else { panic!("{page:?}") };
    assert_eq!((&*relay.application, &*relay.outbox, relay.lane_count), ("shop", "orders-db", 2));
    assert_eq!((relay.held, relay.new, relay.parked), (1, 2, 3));
    let lanes: Vec<u32> = relay.lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes, [3], "empty ones are left out");
    let ids =
        |page: &EventPage| page.items.iter().map(|event| event.event.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&page), ["e-2", "e-1", "e-0"], "the last parked first");
    assert_eq!(page.items[0].parked_at, "2026-11-21T05:30:45.680Z");
    assert_eq!(page.items[0].reason, "<b>no such topic</b>");
    let first = listed(&admin, "?limit=2").await;
    assert_eq!(ids(&first), ["e-2", "e-1"]);
    let rest = listed(&admin, &format!("?limit=2&cursor={}", first.next.unwrap())).await;
    assert_eq!((ids(&rest), rest.next), (vec!["e-0".to_owned()], None));
    assert_eq!(ids(&listed(&admin, "?key=order-1").await), ["e-1"]);
    assert_eq!(listed(&admin, "?outbox=other").await.relays, []);
    let wrong = admin.problem(Method::GET, "/api/v1/events?cursor=x", None).await;
    assert_eq!(wrong, (400, "HF-ADM-BAD-REQUEST".to_owned()));
    let status: ServerStatus = admin.get("/api/v1/status").await;
    assert_eq!((status.relays, status.parked_events), (1, 3));

    // A relay that stops takes its leave.
    let leaving = ReportOutboxRequest { leaves: true, ..parked(&[]) };
    let id = process.report(leaving).await;
    assert_eq!(process.reply(id).await.actions, []);
    assert_eq!(listed(&admin, "").await.relays, []);
}

#[tokio::test]
async fn an_action_is_carried_out_by_the_relay_and_audited() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = roomy();
    config.security.audit_log = Some(folder.path().join("audit.jsonl"));
    let (server, admin, _application) = start_with(config).await;
    let mut process = RelayProcess::connect(server.grpc_address).await;
    let first = process.report(parked(&["e-0"])).await;
    seen(&admin).await;
    let ask = |verb: &str, reason: &str| {
        let (admin, path) = (admin.clone(), format!("/api/v1/events/e-0/{verb}"));
        let body = json!({ "reason": reason }).to_string();
        tokio::spawn(async move { admin.post(&path, Some(&body)).await })
    };
    let asking = ask("requeue", "the topic is there");
    let reply = process.reply(first).await;
    let [action] = &*reply.actions else { panic!("{reply:?}") };
    assert_eq!((action.verb(), &*action.event), (OutboxVerb::Requeue, "e-0"));
    let result = OutboxActionResult {
        id: action.id,
        code: "HF-OUTBOX-WRONG-STATE".to_owned(),
        message: "event e-0 is not parked".to_owned(),
    };
    let report = ReportOutboxRequest { results: vec![result], ..parked(&["e-0"]) };
    let second = process.report(report).await;
    let (status, text) = asking.await.unwrap();
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(text.contains("HF-ADM-RELAY-REFUSED") && text.contains("is not parked"), "{text}");

    let asking = ask("skip", "");
    let reply = process.reply(second).await;
    let result = OutboxActionResult { id: reply.actions[0].id, ..OutboxActionResult::default() };
    process.report(ReportOutboxRequest { results: vec![result], ..parked(&[]) }).await;
    let (status, text) = asking.await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
    let reply: EventReply = serde_json::from_str(&text).unwrap();
    assert_eq!((&*reply.outbox, reply.state), ("orders-db", EventOutcome::Skipped));
    let unknown = admin.problem(Method::POST, "/api/v1/events/e-0/skip", None).await;
    assert_eq!(unknown, (404, "HF-ADM-UNKNOWN-EVENT".to_owned()));

    let audit = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = lines.iter().map(|line| {
        assert_eq!(line["event"], "e-0");
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        [text("action"), text("stage"), text("outcome"), text("detail")].join(" ")
    });
    let told: Vec<String> = told.collect();
    let expected = [
        "requeue asked - the topic is there",
        "requeue answered HF-ADM-RELAY-REFUSED the topic is there",
        "skip asked - -",
        "skip answered done -",
        "skip asked - -",
        "skip answered HF-ADM-UNKNOWN-EVENT -",
    ];
    assert_eq!(told, expected);
}

/// A report that is too large, or names what no relay can have, is refused alone.
#[tokio::test]
async fn a_report_has_limits() {
    let (server, _admin, _application) = start().await;
    let mut process = RelayProcess::connect(server.grpc_address).await;
    let many: Vec<String> = (0..101).map(|number| format!("e-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let lanes = vec![OutboxLane::default(); 65];
    for (report, code) in [
        (parked(&many), "HF-TC-TOO-LARGE"),
        (ReportOutboxRequest { lanes, ..parked(&[]) }, "HF-TC-TOO-LARGE"),
        (ReportOutboxRequest { outbox: String::new(), ..parked(&[]) }, "HF-TC-BAD-REQUEST"),
        (parked(&["../e"]), "HF-TC-BAD-REQUEST"),
    ] {
        let id = process.report(report).await;
        let answer = process.answer(id).await;
        let Answer::Rejected(rejection) = answer else { panic!("{answer:?}") };
        assert_eq!(rejection.code, code);
    }
}

#[tokio::test]
async fn a_viewer_sees_events_and_cannot_act() {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = handfast_server::serve::Server::start(config).await.unwrap();
    let viewer =
        Admin::new(&format!("http://{}", server.admin_address), Some(tokens.viewer.clone()));
    listed(&viewer, "").await;
    let refused = viewer.problem(Method::POST, "/api/v1/events/e-0/skip", None).await;
    assert_eq!(refused, (403, "HF-ADM-FORBIDDEN".to_owned()));
}

/// In a process of its own: tests of one process share a recorder.
#[tokio::test(flavor = "multi_thread")]
async fn what_relays_report_is_in_the_metrics() {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let mut process = RelayProcess::connect(coordinator.grpc).await;
    process.report(parked(&["e-0", "e-1"])).await;
    seen(&admin).await;
    let (_, text) = admin.send(Method::GET, "/metrics", None).await;
    for line in [
        "handfast_relays{state=\"reporting\"} 1",
        "handfast_relays{state=\"silent\"} 0",
        "handfast_relay_events{state=\"held\"} 1",
        "handfast_relay_events{state=\"new\"} 2",
        "handfast_relay_events{state=\"parked\"} 2",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
}
