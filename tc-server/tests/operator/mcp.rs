//! The MCP endpoint, asked by a real client of the protocol over HTTP.

use handfast_proto::v1::{BeginRequest, Decision};
use handfast_server::admin::model::{AuditPage, BulkOutcome, BulkReply, Status};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::{ToolClient, until};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::application::Application;
use crate::port::{Admin, TokensFile, roomy, start};

/// A program that calls tools.
struct Program {
    client: ToolClient,
}

impl Program {
    async fn connect(server: &RunningServer, token: Option<&str>) -> Self {
        Self { client: ToolClient::connect(server.admin_address, token).await.unwrap() }
    }

    async fn tools(&self) -> Vec<String> {
        let tools = self.client.tools().await.unwrap();
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// Calls a tool that answers.
    async fn answer(&self, tool: &'static str, arguments: Value) -> String {
        let answer = self.client.call(tool, arguments).await.unwrap();
        assert!(!answer.is_refusal, "{tool}: {}", answer.text);
        answer.text
    }

    /// Calls a tool that refuses, and returns why.
    async fn refusal(&self, tool: &'static str, arguments: Value) -> String {
        let answer = self.client.call(tool, arguments).await.unwrap();
        assert!(answer.is_refusal, "{tool}: {}", answer.text);
        answer.text
    }

    async fn json(&self, tool: &'static str, arguments: Value) -> Value {
        serde_json::from_str(&self.answer(tool, arguments).await).unwrap()
    }
}

/// A coordinator with tokens, and its tokens.
async fn start_with_tokens() -> (RunningServer, TokensFile) {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    config.security.audit_log = Some(tokens.directory.path().join("audit.jsonl"));
    (Server::start(config).await.unwrap(), tokens)
}

async fn begin(application: &mut Application, order: &str) -> String {
    let request = BeginRequest {
        application: "order-service".to_owned(),
        name: "place-order".to_owned(),
        labels: [("order".to_owned(), order.to_owned())].into(),
        ..BeginRequest::default()
    };
    application.client.begin(request).await.unwrap().into_inner().xid
}

const READING: [&str; 13] = [
    "explain_transaction",
    "find_transactions",
    "show_transaction",
    "list_locks",
    "show_lock_queue",
    "show_wait_graph",
    "list_deadlocks",
    "list_named_locks",
    "find_sagas",
    "show_saga",
    "show_status",
    "list_resources",
    "read_audit_log",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_the_tools_that_read_and_an_operator_all() {
    let (server, tokens) = start_with_tokens().await;
    let viewer = Program::connect(&server, Some(&tokens.viewer)).await;
    assert_eq!(viewer.tools().await, READING);
    let operator = Program::connect(&server, Some(&tokens.operator)).await;
    let all = [&READING[..], &["act_on_transactions"]].concat();
    assert_eq!(operator.tools().await, all);
    let tools = operator.client.tools().await.unwrap();
    for tool in &tools {
        let reads = tool.annotations.as_ref().unwrap().read_only_hint;
        assert_eq!(reads, Some(tool.name != "act_on_transactions"), "{}", tool.name);
        assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
    }
    let find = &tools[1].input_schema["properties"];
    assert!(find["label"].is_object() && find["status"].to_string().contains("needs_operator"));
    assert!(operator.client.instructions().unwrap().contains("explain_transaction"));

    // A viewer that knows the name is refused all the same, in a dry run too.
    for dry_run in [true, false] {
        let arguments = json!({ "action": "rollback", "targets": ["1"], "dry_run": dry_run });
        let text = viewer.refusal("act_on_transactions", arguments).await;
        assert!(text.starts_with("HF-ADM-FORBIDDEN: "), "{text}");
    }
    let status = viewer.json("show_status", json!({})).await;
    assert_eq!(status["active"], 0);
    for token in [None, Some("hft_0".to_owned()), Some(tokens.client.clone())] {
        let admin = Admin::new(&format!("http://{}", server.admin_address), token.clone());
        let expected = if token == Some(tokens.client.clone()) { 403 } else { 401 };
        assert_eq!(admin.problem(Method::POST, "/mcp", Some("{}")).await.0, expected, "{token:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_is_order_42_stuck() {
    let (server, admin, mut application) = start().await;
    let program = Program::connect(&server, None).await;

    // It waits behind a transaction that has begun and done nothing since.
    let holder = begin(&mut application, "41").await;
    application.register(&holder, 1, "2:42").await.unwrap();
    let xid = begin(&mut application, "42").await;
    let mut other = application.client.clone();
    let waiting = crate::application::registration(&xid, 2, "2:42", 60_000);
    let waiter = tokio::spawn(async move { other.register_branch(waiting).await });
    until("it waits", async || !admin.show(&xid).await.waits.is_empty()).await;
    let told = program.answer("explain_transaction", json!({ "label": "order=42" })).await;
    for part in [
        &*format!("Transaction {xid} (place-order of order-service, order=42) is undecided"),
        " for row stock 42 of sqlite:stock, behind ",
        &format!(
            "behind {holder} (place-order of order-service, order=41), which has been undecided"
        ),
        "It has no branch",
        "Still to come, at ",
        &format!("end what is in the way, or roll this one back (`handfast tx rollback {xid}`)"),
    ] {
        assert!(told.contains(part), "{part}:\n{told}");
    }
    application.end(&holder, Decision::Commit).await;
    application.finish().await;
    waiter.await.unwrap().unwrap();

    // Its rollback meets a dirty write.
    application.end(&xid, Decision::RollBack).await;
    application.refuse_again().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let told = program.answer("explain_transaction", json!({ "label": "order=42" })).await;
    for part in [
        "is stuck until a person decides: a branch refuses to roll back",
        "decided: roll back (requested)",
        "It waited for rows once before",
        "Branch 2 on sqlite:stock refuses to roll back: dirty write. Others have written 1 of its 120 rows",
        "stock 42: column units was 10 before, 7 after it, and is 3 now",
        "Its branch is not done.",
        "restore_clean puts clean rows back",
    ] {
        assert!(told.contains(part), "{part}:\n{told}");
    }
    assert!(!told.contains("booking"), "a clean row is not what is in the way: {told}");
    let by_xid = program.answer("explain_transaction", json!({ "xid": xid })).await;
    assert!(by_xid.starts_with(&format!("Transaction {xid}")), "{by_xid}");

    let none = program.answer("explain_transaction", json!({ "label": "order=43" })).await;
    assert!(none.starts_with("No transaction has the label order=43."), "{none}");
    for wrong in [json!({}), json!({ "xid": "99" }), json!({ "label": "order" })] {
        program.refusal("explain_transaction", wrong).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_process_and_a_pause_are_told() {
    let (server, admin, mut application) = start().await;
    let program = Program::connect(&server, None).await;
    let xid = begin(&mut application, "42").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let mut client = application.client.clone();
    drop(application);
    until("the process is gone", async || {
        let status: Value = admin.get("/api/v1/status").await;
        status["processes"] == 0
    })
    .await;
    let request = handfast_proto::v1::EndRequest {
        xid: xid.clone(),
        decision: Decision::Commit.into(),
        ..Default::default()
    };
    client.end(request).await.unwrap();
    let told = program.answer("explain_transaction", json!({ "xid": xid })).await;
    for part in [
        "is decided to commit, and not all of its branches have done so",
        "No connected process serves sqlite:stock: phase two of branch 7 waits for one.",
        "start a process that serves the resource",
    ] {
        assert!(told.contains(part), "{part}:\n{told}");
    }
    let (status, _) = admin.post(&format!("/api/v1/transactions/{xid}/pause"), None).await;
    assert_eq!(status, StatusCode::OK);
    let told = program.answer("explain_transaction", json!({ "xid": xid })).await;
    assert!(told.contains("An operator has paused it"), "{told}");
    assert!(told.contains(&format!("resume it (`handfast tx resume {xid}`)")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_previewed_and_then_confirmed_and_audited() {
    let (server, tokens) = start_with_tokens().await;
    let admin =
        Admin::new(&format!("http://{}", server.admin_address), Some(tokens.operator.clone()));
    let endpoint = format!("http://{}", server.grpc_address);
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let channel = channel.connect().await.unwrap();
    let token: tonic::metadata::MetadataValue<_> =
        format!("Bearer {}", tokens.client).parse().unwrap();
    let mut client = handfast_proto::v1::coordinator_client::CoordinatorClient::with_interceptor(
        channel,
        move |mut request: tonic::Request<()>| {
            request.metadata_mut().insert("authorization", token.clone());
            Ok(request)
        },
    );
    let request = BeginRequest {
        name: "place-order".to_owned(),
        labels: [("order".to_owned(), "42".to_owned())].into(),
        ..BeginRequest::default()
    };
    let xid = client.begin(request).await.unwrap().into_inner().xid;

    let operator = Program::connect(&server, Some(&tokens.operator)).await;
    let ask = json!({ "action": "rollback", "filter": { "label": "order=42" } });
    let dry = operator.answer("act_on_transactions", ask).await;
    let dry: BulkReply = serde_json::from_str(&dry).unwrap();
    assert_eq!((dry.changes, &*dry.items[0].target), (1, &*xid));
    assert_eq!(admin.show(&xid).await.transaction.status, Status::Active, "nothing is changed");

    // Without the confirmation of this very dry run nothing is carried out.
    for confirmation in [json!(null), json!("0"), json!("f".repeat(32))] {
        let arguments = json!({
            "action": "rollback", "targets": [xid], "dry_run": false, "confirmation": confirmation
        });
        let text = operator.refusal("act_on_transactions", arguments).await;
        assert!(text.starts_with("HF-ADM-NOT-CONFIRMED: "), "{text}");
    }
    assert_eq!(admin.show(&xid).await.transaction.status, Status::Active);

    let act = json!({
        "action": "rollback", "targets": [xid], "dry_run": false,
        "confirmation": dry.confirmation, "reason": "the customer asked"
    });
    let done = operator.answer("act_on_transactions", act).await;
    let done: BulkReply = serde_json::from_str(&done).unwrap();
    assert_eq!(done.items[0].outcome, BulkOutcome::Done);
    assert_eq!(admin.show(&xid).await.transaction.status, Status::RolledBack);
    let number = xid.rsplit_once(':').unwrap().1;
    let audit = operator.answer("read_audit_log", json!({ "xid": number })).await;
    let audit: AuditPage = serde_json::from_str(&audit).unwrap();
    let line = &audit.items[0];
    assert_eq!((&*line.operator, &*line.action), ("alice", "rollback"));
    assert_eq!(line.detail.as_deref(), Some("the customer asked"));
    assert_eq!(line.outcome.as_deref(), Some("done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_bounded_and_problems_are_those_of_the_api() {
    let (server, _admin, mut application) = start().await;
    for _ in 0..30 {
        application.begin("many").await;
    }
    let program = Program::connect(&server, None).await;
    let list = async |arguments: Value| {
        let page = program.json("find_transactions", arguments).await;
        page["items"].as_array().unwrap().len()
    };
    // A page of this configuration has three items at most; the bound of the tools comes first.
    assert_eq!(list(json!({ "name": "many" })).await, 3);
    assert_eq!(list(json!({ "name": "many", "limit": 2 })).await, 2);
    let dry = json!({ "action": "rollback", "filter": { "name": "many" } });
    let dry = program.json("act_on_transactions", dry).await;
    assert_eq!(dry["items"].as_array().unwrap().len(), 20);
    for (tool, arguments, code) in [
        ("show_transaction", json!({ "xid": "99" }), "HF-TC-UNKNOWN-XID"),
        ("find_transactions", json!({ "odd": 1 }), "HF-ADM-BAD-REQUEST"),
        ("find_transactions", json!({ "limit": "x" }), "HF-ADM-BAD-REQUEST"),
        ("show_lock_queue", json!({}), "HF-ADM-BAD-REQUEST"),
    ] {
        let text = program.refusal(tool, arguments).await;
        assert!(text.starts_with(code), "{tool}: {text}");
    }
    assert!(program.client.call("no_such_tool", json!({})).await.is_err());
}

/// As an action of the API, a message must not come from a page of another site.
#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let (_server, admin, _application) = start().await;
    let request = admin.http.post(format!("{}/mcp", admin.base)).body("{}");
    let answer = request.header("origin", "http://evil.example").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(answer.text().await.unwrap().contains("HF-ADM-FOREIGN-PAGE"));
    let problem = admin.problem(Method::GET, "/mcp", None).await;
    assert_eq!(problem, (405, "HF-ADM-NO-METHOD".to_owned()));
}
