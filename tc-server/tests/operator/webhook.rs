//! Alerts to a receiver: what they say, how they are signed, and that they arrive although receiver
//! or coordinator were away.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{BeginRequest, Done, RegisterBranchRequest};
use handfast_server::admin::model::{ServerStatus, Status};
use handfast_server::config::{Config, WebhookConfig};
use handfast_server::over_http::{Secret, SignedRequest};
use handfast_test_services::{until, until_some};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::application::{Application, registration};
use crate::events::{RelayProcess, parked};
use crate::port::{Admin, roomy, start_with};
use crate::serving::Coordinator;

const SECRET: &str = "known to coordinator and receiver";

/// A receiver of alerts.
#[derive(Clone)]
struct Receiver {
    shared: Arc<Shared>,
    url: String,
}

struct Shared {
    events: Mutex<Vec<Value>>,
    /// The answers to the next requests; after them: 204.
    answers: Mutex<Vec<StatusCode>>,
    /// Permits to answer.
    gate: Semaphore,
}

impl Receiver {
    async fn start() -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn listen(listener: TcpListener) -> Self {
        let url = format!("http://{}/alerts", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            events: Mutex::default(),
            answers: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS >> 1),
        });
        let routes = Router::new().fallback(take).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { shared, url }
    }

    /// Lets the next requests be answered so.
    fn answer(&self, answers: &[StatusCode]) {
        *self.shared.answers.lock().unwrap() = answers.iter().rev().copied().collect();
    }

    fn events(&self) -> Vec<Value> {
        self.shared.events.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    async fn until(&self, count: usize) -> Vec<Value> {
        until_some("the alerts come", async || {
            let events = self.events();
            (events.len() >= count).then_some(events)
        })
        .await
    }
}

async fn take(State(shared): State<Arc<Shared>>, request: Request) -> StatusCode {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let text = |name: &str| head.headers[name].to_str().unwrap();
    assert_eq!(text("content-type"), "application/cloudevents+json");
    let signed = SignedRequest {
        method: "POST",
        path: head.uri.path(),
        xid: text("handfast-xid"),
        branch: text("handfast-branch").parse().unwrap(),
        operation: "alert",
        timestamp_ms: text("handfast-timestamp").parse().unwrap(),
        body: &body,
    };
    assert_eq!(text("handfast-operation"), "alert");
    if signed.by(&Secret::new(SECRET.as_bytes())) != text("handfast-signature") {
        return StatusCode::UNAUTHORIZED;
    }
    shared.events.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    shared.gate.acquire().await.unwrap().forget();
    shared.answers.lock().unwrap().pop().unwrap_or(StatusCode::NO_CONTENT)
}

/// A configuration with a receiver, and the folder of its files.
fn configured(url: &str) -> (Config, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("alerts.key");
    std::fs::write(&secret, SECRET).unwrap();
    let mut config = roomy();
    config.security.audit_log = Some(folder.path().join("audit.jsonl"));
    config.webhook = WebhookConfig {
        url: Some(url.to_owned()),
        secret_file: Some(secret),
        retry_delay_ms_min: 1,
        retry_delay_ms_max: 20,
        attempts_max: 5,
        ..WebhookConfig::default()
    };
    (config, folder)
}

/// Returns stage, detail and outcome of the lines about alerts.
fn audited(folder: &Path) -> Vec<[String; 3]> {
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let alerts = lines.filter(|line| line["action"] == "alert");
    let field = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    alerts.map(|line| ["stage", "detail", "outcome"].map(|name| field(&line, name))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dirty_write_is_told_once_and_audited() {
    let receiver = Receiver::start().await;
    let (config, folder) = configured(&receiver.url);
    let (_server, admin, mut application) = start_with(config).await;
    let xid = application.refuse().await;
    let events = receiver.until(1).await;
    let event = &events[0];
    let number = xid.rsplit(':').next().unwrap();
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["type"], "handfast.needs_operator");
    assert_eq!(event["id"], format!("{number}/7/handfast.needs_operator/1"));
    assert_eq!(event["subject"], xid);
    let data = json!({
        "xid": xid, "branch": "7", "resource": "sqlite:stock",
        "command": format!("handfast tx show {xid}"),
    });
    assert_eq!(event["data"], data);
    assert!(!event.to_string().contains("dirty write"), "errors may quote rows: {event}");

    // A further failed attempt is no news.
    admin.post(&format!("/api/v1/transactions/{xid}/retry"), None).await;
    application.refuse_again().await;
    until("it is tried again", async || admin.show(&xid).await.branches[0].attempts >= 2).await;
    let next = application.begin("next").await;
    application.register(&next, 8, "2:43").await.unwrap();
    application.end(&next, handfast_proto::v1::Decision::RollBack).await;
    application.refuse_again().await;
    let events = receiver.until(2).await;
    assert_eq!((events.len(), &events[1]["subject"]), (2, &Value::from(&*next)));
    let line =
        |stage: &str, outcome: &str| [stage, "handfast.needs_operator", outcome].map(str::to_owned);
    until("both are audited", async || audited(folder.path()).len() == 4).await;
    let expected = [line("asked", "-"), line("answered", "done")];
    assert_eq!(audited(folder.path()), [expected.clone(), expected].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_sent_until_it_is_taken_and_no_longer_than_the_limit() {
    let receiver = Receiver::start().await;
    let (config, folder) = configured(&receiver.url);
    let (_server, _admin, mut application) = start_with(config).await;
    receiver.answer(&[StatusCode::SERVICE_UNAVAILABLE, StatusCode::FOUND, StatusCode::NOT_FOUND]);
    application.refuse().await;
    let events = receiver.until(4).await;
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]), "{events:?}");
    until("it is audited", async || audited(folder.path()).len() == 2).await;
    assert_eq!(audited(folder.path())[1][2], "done");

    receiver.answer(&[StatusCode::INTERNAL_SERVER_ERROR; 9]);
    let xid = application.begin("second").await;
    application.register(&xid, 8, "2:43").await.unwrap();
    application.end(&xid, handfast_proto::v1::Decision::RollBack).await;
    application.refuse_again().await;
    until("it is given up", async || audited(folder.path()).len() == 4).await;
    assert_eq!(audited(folder.path())[3][2], "HF-TC-ALERT-UNDELIVERED");
    assert_eq!(receiver.events().len(), 4 + 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_find_no_room_are_dropped_and_counted() {
    let receiver = Receiver::start().await;
    // No request is answered until the gate opens.
    receiver.shared.gate.forget_permits(Semaphore::MAX_PERMITS);
    let (mut config, folder) = configured(&receiver.url);
    config.webhook.queue_max = 1;
    let (_server, admin, mut application) = start_with(config).await;
    let first = application.refuse().await;
    receiver.until(1).await;
    for branch in 8..11 {
        let xid = application.begin("further").await;
        application.register(&xid, branch, &format!("2:{}", 40 + branch)).await.unwrap();
        application.end(&xid, handfast_proto::v1::Decision::RollBack).await;
        application.refuse_again().await;
        admin.until(&xid, Status::NeedsOperator).await;
    }
    receiver.shared.gate.add_permits(100);
    let events = receiver.until(2).await;
    assert_eq!(events[0]["subject"], first);
    until("the loss is audited", async || audited(folder.path()).len() == 5).await;
    let audited = audited(folder.path());
    let dropped = &audited[2];
    assert_eq!(dropped[1], "2 alerts found no room in the queue");
    assert_eq!(dropped[2], "HF-TC-ALERTS-DROPPED");
    assert_eq!(receiver.events().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_given_up_and_a_compensation_that_refuses_are_told() {
    let receiver = Receiver::start().await;
    let (config, _folder) = configured(&receiver.url);
    let (server, admin, _application) = start_with(config).await;
    let mut stock = Application::connect_for_sagas(server.grpc_address, &["stock"]).await;
    let step = |name: &str, attempts: u32| {
        json!({
            "name": name, "kind": "compensable", "resource": "stock", "action": name,
            "retry": {"attempts": attempts},
        })
    };
    let saga = json!({"name": "place-order", "steps": [step("reserve", 1), step("ship", 1)]});
    let body = json!({"key": "order-42", "saga": saga}).to_string();
    let (status, started) = admin.post("/api/v1/sagas", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{started}");
    stock.finish().await;
    stock.fail_step("the truck is full").await;
    let events = receiver.until(1).await;
    assert_eq!(events[0]["type"], "handfast.saga_step_given_up");
    let data = &events[0]["data"];
    assert_eq!((&data["step"], &data["key"]), (&json!("ship"), &json!("order-42")));
    assert!(data["command"].as_str().unwrap().starts_with("handfast saga show "), "{data}");
    stock.refuse_step("no compensation").await;
    let events = receiver.until(2).await;
    assert_eq!(events[1]["type"], "handfast.needs_operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn phase_two_that_does_not_go_down_is_told_once() {
    let receiver = Receiver::start().await;
    let (mut config, _folder) = configured(&receiver.url);
    config.webhook.overdue_ms = 300;
    let (_server, admin, mut application) = start_with(config).await;
    let mut owed = Vec::new();
    for branch in [7, 8] {
        let xid = application.begin("place-order").await;
        application.register(&xid, branch, &format!("2:4{branch}")).await.unwrap();
        application.end(&xid, handfast_proto::v1::Decision::Commit).await;
        owed.push(xid);
    }
    let (first, _) = application.asked().await;
    let (second, _) = application.asked().await;
    let events = receiver.until(1).await;
    assert_eq!(events[0]["type"], "handfast.phase_two_overdue");
    let data = &events[0]["data"];
    assert_eq!((&data["resource"], &data["xid"]), (&json!("sqlite:stock"), &json!(owed[0])));
    assert!(data["overdue"].as_u64().unwrap() >= 1 && data["since"].is_string(), "{data}");
    for call in [first, second] {
        let done = handfast_proto::v1::branch_outcome::Result::Done(Default::default());
        application.answer(&call, done).await;
    }
    for xid in &owed {
        admin.until(xid, Status::Committed).await;
    }
    assert_eq!(receiver.events().len(), 1);
}

/// Its global stays undecided beyond its time, with its rows locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_last_branch_that_does_not_say_whether_it_has_committed_is_told() {
    let receiver = Receiver::start().await;
    let (mut config, _folder) = configured(&receiver.url);
    config.webhook.overdue_ms = 300;
    let (_server, admin, mut application) = start_with(config).await;
    let begin = BeginRequest { timeout_ms: 100, ..BeginRequest::default() };
    let xid = application.client.begin(begin).await.unwrap().into_inner().xid;
    let last = RegisterBranchRequest { is_last: true, ..registration(&xid, 7, "2:42", 0) };
    assert!(application.client.register_branch(last).await.unwrap().into_inner().decides);
    let (call, _branch) = application.asked().await;
    let events = receiver.until(1).await;
    assert_eq!(events[0]["type"], "handfast.phase_two_overdue");
    let data = &events[0]["data"];
    assert_eq!((&data["resource"], &data["xid"]), (&json!("sqlite:stock"), &json!(xid)));
    let pending = async || admin.get::<ServerStatus>("/api/v1/status").await.pending_branches;
    assert_eq!(pending().await, 1);
    application.answer(&call, Outcome::Done(Done {})).await;
    application.finish().await;
    admin.until(&xid, Status::Committed).await;
    assert_eq!(pending().await, 0);
}

/// One alert for those that a relay has parked since the last look.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_event_is_told() {
    let receiver = Receiver::start().await;
    let (config, folder) = configured(&receiver.url);
    let (server, _admin, _application) = start_with(config).await;
    let mut process = RelayProcess::connect(server.grpc_address).await;
    process.report(parked(&["e-0", "e-1"])).await;
    let events = receiver.until(1).await;
    assert_eq!(events[0]["type"], "handfast.event_parked");
    assert_eq!(events[0]["subject"], "e-1");
    let data = json!({
        "event": "e-1", "application": "shop", "outbox": "orders-db", "topic": "orders",
        "key": "order-1", "parked": 2, "since": "2026-11-21T05:30:45.679Z",
        "command": "handfast events ls",
    });
    assert_eq!(events[0]["data"], data);
    assert!(!events[0].to_string().contains("no such topic"), "errors may quote payloads");
    let mut again = parked(&["e-0", "e-1"]);
    again.parked[0].parked_at_ms += 60_000;
    process.report(again).await;
    let events = receiver.until(2).await;
    assert_eq!(events[1]["subject"], "e-0");
    until("both are audited", async || audited(folder.path()).len() == 4).await;
    assert_eq!(audited(folder.path())[1], ["answered", "handfast.event_parked", "done"]);
}

// What stands is told again by the next process: an alert lives in memory alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_alert_survives_a_kill() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    // For as long as the first process lives, the receiver is down.
    drop(listener);
    let (config, folder) = configured(&format!("http://{address}/alerts"));
    let file = folder.path().join("handfast.toml");
    let webhook = toml::to_string(&config.webhook).unwrap();
    let text = format!("data_dir = {:?}\n[webhook]\n{webhook}", folder.path().join("data"));
    std::fs::write(&file, text.replace("attempts_max = 5", "attempts_max = 1000")).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let coordinator = Coordinator::start(&arguments);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let mut application = Application::connect(coordinator.grpc).await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    coordinator.signal("-KILL");
    coordinator.wait();

    let receiver = Receiver::listen(TcpListener::bind(address).await.unwrap());
    let _coordinator = Coordinator::start(&arguments);
    let events = receiver.until(1).await;
    let number = xid.rsplit(':').next().unwrap();
    assert_eq!(events[0]["id"], format!("{number}/7/handfast.needs_operator/1"));
    assert_eq!(events[0]["subject"], xid);
}
