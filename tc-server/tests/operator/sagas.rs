//! Sagas by REST and by the command line: they are started, listed, shown, given signals and
//! cancelled, without a program of the application.

use std::path::Path;
use std::process::Output;

use expect_test::{Expect, expect};
use handfast_server::admin::model::{
    NextAttemptState, SagaDetail, SagaOverview, SagaPage, SagaReply, SagaStanding, SagaStepState,
};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::until_some;
use http::{Method, StatusCode};
use serde_json::json;

use crate::application::Application;
use crate::port::{Admin, TokensFile, roomy};
use crate::serving::{Coordinator, handfast};

/// A saga of which the second step waits for a person.
const EXPENSE: &str = r#"{
    "name": "expense",
    "timeout_ms": 86400000,
    "steps": [
        {"name": "set-aside", "kind": "compensable", "resource": "budget", "action": "set-aside",
         "input": {"cents": 300}},
        {"name": "approval", "kind": "signal", "timeout_ms": 3600000},
        {"name": "pay", "kind": "pivot", "resource": "budget", "action": "pay",
         "takes": ["approval"]},
        {"name": "book", "kind": "retriable", "resource": "ledger", "action": "book"}
    ]
}"#;

struct Office {
    _server: RunningServer,
    admin: Admin,
    budget: Application,
    folder: tempfile::TempDir,
}

impl Office {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = roomy();
        config.security.audit_log = Some(folder.path().join("audit.jsonl"));
        let server = Server::start(config).await.unwrap();
        let admin = Admin::new(&format!("http://{}", server.admin_address), None);
        let budget = Application::connect_for_sagas(server.grpc_address, &["budget"]).await;
        std::fs::write(folder.path().join("expense.json"), EXPENSE).unwrap();
        Self { _server: server, admin, budget, folder }
    }

    /// Runs `handfast saga` with these arguments.
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = handfast(&[&["saga"], arguments].concat());
        command.env("HANDFAST_SERVER", &self.admin.base).current_dir(self.folder.path());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs `handfast saga` with these arguments, and returns what it prints.
    async fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the exit code and what is said of a command that fails.
    async fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments).await;
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    async fn start(&self, key: &str) -> SagaReply {
        self.start_saga(key, EXPENSE).await
    }

    async fn start_saga(&self, key: &str, saga: &str) -> SagaReply {
        let saga: serde_json::Value = serde_json::from_str(saga).unwrap();
        let body = json!({"key": key, "application": "expenses", "saga": saga});
        let (status, body) = self.admin.post("/api/v1/sagas", Some(&body.to_string())).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Polls until the step has this state: an outcome has no reply to wait for.
    async fn until(&self, xid: &str, step: &str, state: SagaStepState) -> SagaDetail {
        until_some("the step has the state", async || {
            let detail: SagaDetail = self.admin.get(&format!("/api/v1/sagas/{xid}")).await;
            let found = detail.steps.iter().find(|it| it.name == step).expect("the step");
            (found.state == state).then_some(detail)
        })
        .await
    }

    async fn keys(&self, query: &str) -> Vec<String> {
        let page: SagaPage = self.admin.get(&format!("/api/v1/sagas?{query}")).await;
        page.items.into_iter().map(|saga| saga.key).collect()
    }
}

fn audit_lines(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Compares what was printed, without XIDs, times and ages.
fn check(printed: &str, xid: &str, expected: Expect) {
    let printed = printed.replace(xid, "XID");
    let age = printed.split_once("Z (").and_then(|(_, rest)| rest.split_once(" ago)"));
    let age = age.map(|(age, _)| age.to_owned());
    let printed = age.map_or_else(|| printed.clone(), |age| printed.replace(&age, "AGE"));
    let is_time = |word: &str| word.len() == 24 && word.ends_with('Z') && word.contains("T");
    let untimed = printed.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end();
        if is_time(bare) { word.replace(bare, "TIME") } else { word.to_owned() }
    });
    expected.assert_eq(&untimed.collect::<String>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_waits_for_a_person_is_listed_and_shown() {
    let mut office = Office::open().await;
    let start = ["start", "expense.json", "--key", "expense-1", "--reason", "by phone"];
    let started = office.done(&start).await;
    let (xid, said) = started.trim().split_once(' ').unwrap();
    assert_eq!(said, "(key expense-1) is running");
    office.budget.give(r#"{"left": 200}"#).await;
    office.until(xid, "approval", SagaStepState::Running).await;

    let listed = office.done(&["ls", "--awaits", "approval", "--json"]).await;
    let page: SagaPage = serde_json::from_str(&listed).unwrap();
    let [SagaOverview { key, awaits, under_way, steps_done, step_count, .. }] = &*page.items else {
        panic!("one saga: {listed}")
    };
    assert_eq!((&**key, &**awaits), ("expense-1", &["approval".to_owned()][..]));
    assert!(under_way.is_empty(), "{under_way:?}");
    assert_eq!((*steps_done, *step_count), (1, 4));
    let shown = office.done(&["show", "key=expense-1"]).await;
    check(
        &shown,
        xid,
        expect![[r#"
        XID  running
        key expense-1
        operator / expense  begun TIME (AGE ago)  deadline TIME

        steps
        STEP       KIND         STATE    FAILED  NEXT                            AT                   LAST FAILURE
        set-aside  compensable  done     0       -                               set-aside at budget  -
        approval   signal       running  0       until TIME  a signal             -
        pay        pivot        waiting  0       -                               pay at budget        -
        book       retriable    waiting  0       -                               book at ledger       -

        inputs and outputs
        STEP       WHAT    BYTES  CONTENT
        set-aside  input   13     {"cents":300}
        set-aside  output  13     {"left":200}

        timeline
        AT                        WHAT
        TIME  begun
        TIME  step set-aside: begun
        TIME  step set-aside: done
        TIME  step approval: begun

        to go on
        handfast saga signal XID approval --payload null
        handfast saga cancel XID   # unless its pivot has begun
    "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_person_is_the_output_of_the_step_and_audited() {
    let mut office = Office::open().await;
    let start = ["start", "expense.json", "--key", "expense-1", "--reason", "by phone"];
    let started = office.done(&start).await;
    let (xid, said) = started.trim().split_once(' ').unwrap();
    assert_eq!(said, "(key expense-1) is running");
    // The same key is the same saga.
    assert_eq!(office.done(&start).await, started);
    office.budget.give(r#"{"left": 200}"#).await;
    office.until(xid, "approval", SagaStepState::Running).await;

    let signal = ["signal", xid, "approval", "--payload", r#""Ada""#, "--reason", "mail of today"];
    let signalled = office.done(&signal).await;
    assert_eq!(signalled, format!("{xid} (key expense-1) is running\n"));
    let (_call, branch) = office.budget.finish().await;
    let outputs = branch.step.unwrap().outputs;
    assert_eq!((&*outputs[0].step, &*outputs[0].output), ("approval", &b"\"Ada\""[..]));
    // The payload is another one, and the step is done.
    let again = ["signal", xid, "approval", "--payload", r#""Bob""#];
    let (exit, said) = office.refused(&again).await;
    assert_eq!((exit, said.contains("error[HF-TC-UNKNOWN-SIGNAL]")), (4, true), "{said}");

    let detail = office.until(xid, "pay", SagaStepState::Done).await;
    let noted = detail.timeline.iter().find(|it| it.what.starts_with("signal ")).unwrap();
    assert_eq!(noted.what, "signal approval by anonymous: mail of today");
    let book = detail.steps.iter().find(|step| step.name == "book").unwrap();
    let next = book.next_attempt.as_ref().unwrap();
    assert_eq!((next.state, &next.at), (NextAttemptState::WaitsForProcess, &None));
    let (exit, said) = office.refused(&["cancel", xid]).await;
    assert_eq!((exit, said.contains("error[HF-TC-PAST-PIVOT]")), (4, true), "{said}");

    let lines = audit_lines(office.folder.path());
    let short = |line: &serde_json::Value| {
        let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
        let fields = ["stage", "action", "xid", "saga", "step", "detail", "outcome"].map(text);
        fields.join(" ").replace(xid.rsplit(':').next().unwrap(), "XID")
    };
    expect![[r#"
        asked start - expense-1 - by phone -
        answered start XID expense-1 - by phone done
        asked start - expense-1 - by phone -
        answered start XID expense-1 - by phone done
        asked signal XID - approval mail of today -
        answered signal XID - approval mail of today done
        asked signal XID - approval - -
        answered signal XID - approval - HF-TC-UNKNOWN-SIGNAL
        asked cancel XID - - - -
        answered cancel XID - - - HF-TC-PAST-PIVOT"#]]
    .assert_eq(&lines.iter().map(short).collect::<Vec<_>>().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saga_is_cancelled_and_compensated() {
    let mut office = Office::open().await;
    let xid = office.start("expense-2").await.xid;
    office.budget.finish().await;
    office.until(&xid, "approval", SagaStepState::Running).await;
    let cancelled = office.done(&["cancel", "key=expense-2", "--reason", "not approved"]).await;
    assert_eq!(cancelled, format!("{xid} (key expense-2) is compensating\n"));
    office.budget.finish().await;
    let detail = office.until(&xid, "set-aside", SagaStepState::Compensated).await;
    let SagaOverview { status, cause, ended_at, .. } = &detail.saga;
    assert_eq!((*status, cause.as_deref()), (SagaStanding::Compensated, Some("operator")));
    assert!(ended_at.is_some());
    let shown = office.done(&["show", &xid]).await;
    check(
        &shown,
        &xid,
        expect![[r#"
        XID  compensated
        key expense-2
        expenses / expense  begun TIME (AGE ago)  deadline TIME
        compensated because: operator

        steps
        STEP       KIND         STATE        FAILED  NEXT  AT                   LAST FAILURE
        set-aside  compensable  compensated  0       -     set-aside at budget  -
        approval   signal       failed       0       -     a signal             -
        pay        pivot        waiting      0       -     pay at budget        -
        book       retriable    waiting      0       -     book at ledger       -

        inputs and outputs
        STEP       WHAT   BYTES  CONTENT
        set-aside  input  13     {"cents":300}

        timeline
        AT                        WHAT
        TIME  begun
        TIME  step set-aside: begun
        TIME  step approval: begun
        TIME  to be compensated: operator: anonymous: not approved
        TIME  step set-aside: compensated
        TIME  compensated
    "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sagas_are_listed_by_filter_and_page() {
    let mut office = Office::open().await;
    let xid = &office.start("expense-1").await.xid;
    office.budget.finish().await;
    office.until(xid, "approval", SagaStepState::Running).await;
    for number in 2..=5 {
        office.start(&format!("expense-{number}")).await;
    }
    assert_eq!(office.keys("key=expense-3").await, ["expense-3"]);
    assert!(office.keys("key=expense-9").await.is_empty());
    assert!(office.keys("older_than=1h").await.is_empty());
    assert_eq!(office.keys("awaits=approval").await, ["expense-1"]);
    let running = office.keys("status=running&application=expenses&name=expense").await;
    assert_eq!(running, [5, 4, 3].map(|number| format!("expense-{number}")), "a page of three");
    for none in ["status=completed", "application=absent", "name=absent"] {
        assert!(office.keys(none).await.is_empty(), "{none}");
    }

    let mut listed = Vec::new();
    let mut path = "/api/v1/sagas?limit=2".to_owned();
    loop {
        let page: SagaPage = office.admin.get(&path).await;
        assert!(page.items.len() <= 2);
        listed.extend(page.items.into_iter().map(|saga| saga.key));
        let Some(next) = page.next else { break };
        path = format!("/api/v1/sagas?limit=2&cursor={next}");
    }
    assert_eq!(listed, [5, 4, 3, 2, 1].map(|number| format!("expense-{number}")));
    let wrong = office.admin.problem(Method::GET, "/api/v1/sagas?cursor=x", None).await;
    assert_eq!(wrong, (400, "HF-ADM-BAD-REQUEST".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_shown_to_a_limit_and_one_step_whole() {
    let mut office = Office::open().await;
    let xid = office.start("expense-1").await.xid;
    let note = "x".repeat(5_000);
    office.budget.give(&json!({ "note": note }).to_string()).await;
    let detail = office.until(&xid, "set-aside", SagaStepState::Done).await;
    let input = detail.steps[0].input.as_ref().unwrap();
    assert_eq!((input.cut, &input.json), (false, &Some(json!({"cents": 300}))));
    let output = detail.steps[0].output.as_ref().unwrap();
    assert_eq!((output.bytes, output.cut, &output.json), (5_011, true, &None));
    assert_eq!(output.text.as_ref().unwrap().len(), 1_024);

    let path = format!("/api/v1/sagas/{xid}?step=set-aside&payload_bytes=65536");
    let detail: SagaDetail = office.admin.get(&path).await;
    let [step] = &*detail.steps else { panic!("one step: {:?}", detail.steps) };
    let output = step.output.as_ref().unwrap();
    assert_eq!((output.cut, &output.json), (false, &Some(json!({ "note": note }))));
    assert!(detail.timeline.len() > 1, "{:?}", detail.timeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_step_shows_its_next_attempt_and_a_stuck_one_what_to_do() {
    let mut office = Office::open().await;
    // Tried once, and then not again within the test.
    let retry = r#""retry": {"base_ms": 600000, "cap_ms": 600000}, "input""#;
    let saga = EXPENSE.replacen("\"input\"", retry, 1);
    let xid = office.start_saga("expense-1", &saga).await.xid;
    office.budget.fail_step("the database is down").await;
    let detail = until_some("the failure is shown", async || {
        let detail: SagaDetail = office.admin.get(&format!("/api/v1/sagas/{xid}")).await;
        (detail.steps[0].attempts > 0).then_some(detail)
    })
    .await;
    let step = &detail.steps[0];
    assert_eq!(step.last_failure.as_ref().unwrap().error, "the database is down");
    let next = step.next_attempt.as_ref().unwrap();
    assert_eq!((next.state, next.at.is_some()), (NextAttemptState::Due, true));
    let approval = &detail.steps[1];
    assert!(approval.next_attempt.is_none() && approval.times_out_at.is_none(), "{approval:?}");

    let paused = format!("/api/v1/transactions/{xid}/pause");
    assert_eq!(office.admin.post(&paused, None).await.0, StatusCode::OK);
    let detail: SagaDetail = office.admin.get(&format!("/api/v1/sagas/{xid}")).await;
    let next = detail.steps[0].next_attempt.as_ref().unwrap();
    assert_eq!((detail.saga.paused, next.state), (true, NextAttemptState::Paused));
    let resumed = format!("/api/v1/transactions/{xid}/resume");
    assert_eq!(office.admin.post(&resumed, None).await.0, StatusCode::OK);

    // A compensation that refuses needs an operator.
    office.budget.finish().await;
    office.until(&xid, "approval", SagaStepState::Running).await;
    office.done(&["cancel", &xid]).await;
    office.budget.refuse_step("the account is closed").await;
    let stuck = office.until(&xid, "set-aside", SagaStepState::CompensatingStuck).await;
    assert_eq!(stuck.saga.status, SagaStanding::NeedsOperator);
    let shown = office.done(&["show", &xid]).await;
    let (_, to_go_on) = shown.split_once("\nto go on\n").expect("what to do");
    let branch = stuck.steps[0].branch.as_ref().unwrap();
    let expected = format!(
        "handfast tx retry {xid}\n\
         handfast tx resolve {xid} {branch} accept_current   # set-aside was put right by hand\n"
    );
    assert_eq!(to_go_on, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_with_its_code() {
    let office = Office::open().await;
    office.start("expense-1").await;
    std::fs::write(office.folder.path().join("other.json"), EXPENSE.replace("300", "301")).unwrap();
    std::fs::write(office.folder.path().join("broken.json"), "{").unwrap();
    let endless = EXPENSE.replace("\"kind\": \"pivot\"", "\"kind\": \"retriable\"");
    std::fs::write(office.folder.path().join("endless.json"), endless).unwrap();
    let cases: [(&[&str], i32, &str); 10] = [
        (&["start", "other.json", "--key", "expense-1"], 4, "HF-TC-SAGA-MISMATCH"),
        (&["start", "broken.json", "--key", "expense-2"], 2, "HF-SAGA-JSON"),
        (&["start", "endless.json", "--key", "expense-2"], 2, "HF-TC-SAGA-INVALID"),
        (&["start", "absent.json", "--key", "expense-2"], 2, "HF-CLI-SAGA-FILE"),
        (&["start", "expense.json", "--key", ""], 2, "HF-TC-BAD-REQUEST"),
        (&["show", "key=absent"], 3, "HF-CLI-NO-SAGA"),
        (&["show", "7"], 3, "HF-TC-UNKNOWN-XID"),
        (&["signal", "key=expense-1", "pay"], 4, "HF-TC-UNKNOWN-SIGNAL"),
        (&["signal", "key=expense-1", "approval", "--payload", "Ada"], 2, "HF-CLI-ARGUMENT"),
        (&["cancel", "../status"], 2, "HF-CLI-ARGUMENT"),
    ];
    for (arguments, exit, code) in cases {
        let (given, said) = office.refused(arguments).await;
        assert_eq!((given, said.contains(code)), (exit, true), "{arguments:?}: {said}");
    }
    let body = json!({"key": "k", "saga": {"name": "s", "steps": [1]}}).to_string();
    let problem = office.admin.problem(Method::POST, "/api/v1/sagas", Some(&body)).await;
    assert_eq!(problem, (400, "HF-SAGA-JSON".to_owned()));
    let long = json!({"signal": "approval", "payload": "x".repeat(200_000)}).to_string();
    let path = "/api/v1/sagas/7/signal";
    let problem = office.admin.problem(Method::POST, path, Some(&long)).await;
    assert_eq!(problem, (413, "HF-ADM-BODY-TOO-LARGE".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_and_an_operator_acts() {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let base = format!("http://{}", server.admin_address);
    let viewer = Admin::new(&base, Some(tokens.viewer.clone()));
    let operator = Admin::new(&base, Some(tokens.operator.clone()));
    let saga: serde_json::Value = serde_json::from_str(EXPENSE).unwrap();
    let body = json!({"key": "expense-1", "saga": saga}).to_string();
    let refused = viewer.problem(Method::POST, "/api/v1/sagas", Some(&body)).await;
    assert_eq!(refused, (403, "HF-ADM-FORBIDDEN".to_owned()));
    assert_eq!(viewer.get::<SagaPage>("/api/v1/sagas").await.items, []);
    let (status, body) = operator.post("/api/v1/sagas", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let page: SagaPage = viewer.get("/api/v1/sagas").await;
    let xid = &page.items[0].xid;
    assert_eq!(page.items[0].application, "operator");
    let detail: SagaDetail = viewer.get(&format!("/api/v1/sagas/{xid}")).await;
    assert_eq!(detail.steps.len(), 4);
    let signal = Some(r#"{"signal": "approval"}"#);
    for (action, body) in [("signal", signal), ("cancel", None)] {
        let path = format!("/api/v1/sagas/{xid}/{action}");
        let refused = viewer.problem(Method::POST, &path, body).await;
        assert_eq!(refused, (403, "HF-ADM-FORBIDDEN".to_owned()));
        assert_eq!(operator.post(&path, body).await.0, StatusCode::OK, "{path}");
    }
}

// The answer of a person that was acknowledged must not be lost with the coordinator.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_was_answered_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let arguments = ["--data-dir", data_dir.to_str().unwrap()];
    let coordinator = Coordinator::start(&arguments);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let saga: serde_json::Value = serde_json::from_str(EXPENSE).unwrap();
    let body = json!({"key": "expense-1", "saga": saga}).to_string();
    let (_, started) = admin.post("/api/v1/sagas", Some(&body)).await;
    let SagaReply { xid, .. } = serde_json::from_str(&started).unwrap();
    let mut budget = Application::connect_for_sagas(coordinator.grpc, &["budget"]).await;
    budget.finish().await;
    let path = format!("/api/v1/sagas/{xid}/signal");
    let body = r#"{"signal": "approval", "payload": "Ada"}"#;
    assert_eq!(admin.post(&path, Some(body)).await.0, StatusCode::OK);
    coordinator.signal("-KILL");
    coordinator.wait();

    let coordinator = Coordinator::start(&arguments);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let detail: SagaDetail = admin.get(&format!("/api/v1/sagas/{xid}")).await;
    let approval = &detail.steps[1];
    assert_eq!(approval.output.as_ref().unwrap().json, Some(json!("Ada")));
    let mut budget = Application::connect_for_sagas(coordinator.grpc, &["budget"]).await;
    let (_call, branch) = budget.finish().await;
    assert_eq!(branch.step.unwrap().step, "pay");
}
