//! The admin API on a real coordinator.

use handfast_proto::v1::Decision;
use handfast_server::admin::model::{
    BranchState, Lock, LockPage, Processes, Resources, RollbackReason, ServerStatus, Status,
    TransactionPage,
};
use handfast_server::serve::ShutdownOutcome;
use handfast_test_services::until;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::application::{RESOURCE, registration};
use crate::port::{roomy, start, start_with};

#[tokio::test]
async fn a_transaction_is_listed_shown_and_remembered() {
    let (server, admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();

    let detail = admin.show(&xid).await;
    assert_eq!(detail.transaction.xid, xid);
    assert_eq!(detail.transaction.status, Status::Active);
    assert_eq!(detail.branches[0].id, "7");
    assert_eq!(detail.branches[0].rows[0].key, "42");
    assert_eq!(detail.branches[0].rows[0].canonical_key, "2:42");
    let number = xid.rsplit_once(':').unwrap().1;
    assert_eq!(admin.show(number).await.transaction.xid, xid);

    application.end(&xid, Decision::Commit).await;
    application.finish().await;
    let detail = admin.until(&xid, Status::Committed).await;
    assert_eq!(detail.branches[0].state, BranchState::Finished);
    assert!(detail.transaction.finished_at.is_some());
    let times: Vec<_> = detail.timeline.iter().map(|entry| &entry.at).collect();
    assert!(times.is_sorted());
    assert_eq!(detail.timeline.first().unwrap().what, "begun");
    assert_eq!(detail.timeline.last().unwrap().what, "committed");
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let (_server, admin, mut application) = start().await;
    let mut begun = Vec::new();
    for name in ["a", "b", "a", "a", "a", "b"] {
        begun.push(application.begin(name).await);
    }
    let page: TransactionPage = admin.get("/api/v1/transactions?name=b&status=active").await;
    let listed: Vec<_> = page.items.iter().map(|item| &item.xid).collect();
    assert_eq!(listed, [&begun[5], &begun[1]]);

    let mut listed = Vec::new();
    let mut path = "/api/v1/transactions?name=a&limit=2".to_owned();
    loop {
        let page: TransactionPage = admin.get(&path).await;
        assert!(page.items.len() <= 2);
        listed.extend(page.items.into_iter().map(|item| item.xid));
        let Some(next) = page.next else { break };
        path = format!("/api/v1/transactions?name=a&limit=2&cursor={next}");
    }
    assert_eq!(listed, [&*begun[4], &begun[3], &begun[2], &begun[0]]);

    // The limit of the configuration holds for any request.
    let page: TransactionPage = admin.get("/api/v1/transactions?limit=100000").await;
    assert_eq!(page.items.len(), roomy().admin.page_items_max);
    for empty in ["older_than=1h", "application=absent", "status=committed"] {
        let page: TransactionPage = admin.get(&format!("/api/v1/transactions?{empty}")).await;
        assert_eq!(page.items, []);
    }
}

#[tokio::test]
async fn locks_are_shown_with_holder_and_queue() {
    let (_server, admin, mut application) = start().await;
    let holder = application.begin("first").await;
    for (branch, key) in [(1, "2:42"), (2, "1:71:a"), (3, "1:9"), (4, "1:8")] {
        application.register(&holder, branch, key).await.unwrap();
    }
    let waiter = application.begin("second").await;
    let request = registration(&waiter, 9, "2:42", 60_000);
    let mut client = application.client.clone();
    let waiting = tokio::spawn(async move { client.register_branch(request).await });

    let one = format!("/api/v1/locks/one?resource={RESOURCE}&table=stock&key=42");
    let lock = loop {
        let lock: Lock = admin.get(&one).await;
        if !lock.queue.is_empty() {
            break lock;
        }
    };
    assert_eq!((&*lock.key, &*lock.canonical_key), ("42", "2:42"));
    assert_eq!(lock.holders[0].xid, holder);
    assert_eq!(lock.queue[0].xid.as_deref(), Some(&*waiter));

    let mut keys = Vec::new();
    let mut path = "/api/v1/locks?table=stock".to_owned();
    loop {
        let page: LockPage = admin.get(&path).await;
        keys.extend(page.items.into_iter().map(|lock| lock.key));
        let Some(next) = page.next else { break };
        path = format!("/api/v1/locks?table=stock&cursor={next}");
    }
    assert_eq!(keys, ["42", "7, a", "9", "8"]);
    let page: LockPage = admin.get(&format!("/api/v1/locks?key=9&holder={holder}")).await;
    assert_eq!(page.items.len(), 1);
    let page: LockPage = admin.get(&format!("/api/v1/locks?holder={waiter}")).await;
    assert_eq!(page.items, []);

    let status: ServerStatus = admin.get("/api/v1/status").await;
    assert_eq!((status.active, status.locks, status.waiters), (2, 4, 1));

    // The decision to commit grants the lock to the waiter.
    let (done, body) = admin.post(&format!("/api/v1/transactions/{holder}/commit"), None).await;
    assert_eq!(done, StatusCode::OK, "{body}");
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_operator_decides_pauses_and_retries() {
    let (_server, admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let path = |action: &str| format!("/api/v1/transactions/{xid}/{action}");

    let (status, body) = admin.post(&path("rollback"), Some(r#"{"reason":"stuck"}"#)).await;
    assert_eq!((status, body.contains("rolling_back")), (StatusCode::OK, true), "{body}");
    let (_call, branch) = application.asked().await;
    assert_eq!(branch.branch_id, 7);
    let detail = admin.show(&xid).await;
    assert_eq!(detail.transaction.rollback_reason, Some(RollbackReason::Operator));

    assert_eq!(admin.post(&path("pause"), None).await.0, StatusCode::OK);
    assert!(admin.show(&xid).await.transaction.paused);
    assert_eq!(admin.post(&path("resume"), None).await.0, StatusCode::OK);
    assert!(!admin.show(&xid).await.transaction.paused);
    assert_eq!(admin.post(&path("retry"), None).await.0, StatusCode::OK);

    let refused = admin.problem(Method::POST, &path("commit"), None).await;
    assert_eq!(refused, (409, "HF-TC-ALREADY-DECIDED".to_owned()));
}

// Regression: an executed decision was answered, and recorded, as unknown.
#[tokio::test]
async fn a_decision_on_a_global_forgotten_at_once_is_answered() {
    let mut config = roomy();
    config.limits.history_max = 0;
    let (_server, admin, mut application) = start_with(config).await;
    for (action, becomes) in [("commit", "committed"), ("rollback", "rolled_back")] {
        let xid = application.begin("place-order").await;
        let (status, body) =
            admin.post(&format!("/api/v1/transactions/{xid}/{action}"), None).await;
        assert_eq!((status, &*body), (StatusCode::OK, &*reply(&xid, becomes)));
        let path = format!("/api/v1/transactions/{xid}");
        let problem = admin.problem(Method::GET, &path, None).await;
        assert_eq!(problem, (404, "HF-TC-UNKNOWN-XID".to_owned()));
    }
}

fn reply(xid: &str, status: &str) -> String {
    format!(r#"{{"xid":"{xid}","status":"{status}"}}"#)
}

#[tokio::test]
async fn connected_resources_and_processes_are_listed() {
    let (_server, admin, application) = start().await;
    let resources: Resources = admin.get("/api/v1/resources").await;
    assert_eq!(resources.items.len(), 1);
    assert_eq!(resources.items[0].id, RESOURCE);
    assert_eq!(resources.items[0].label, "SQLite stock.db");
    assert_eq!(resources.items[0].processes, 1);
    let processes: Processes = admin.get("/api/v1/processes").await;
    assert_eq!(processes.items[0].application, "order-service");
    assert_eq!(processes.items[0].resources, [RESOURCE]);
    drop(application);
    until("it has left", async || {
        admin.get::<Processes>("/api/v1/processes").await.items.is_empty()
    })
    .await;
}

#[tokio::test]
async fn wrong_requests_are_answered_with_a_problem() {
    let (_server, admin, _application) = start().await;
    let long = format!("/api/v1/transactions?name={}", "x".repeat(9_000));
    let large = format!(r#"{{"reason":"{}"}}"#, "x".repeat(200_000));
    let get = [
        ("/api/v1/transactions/99", 404, "HF-TC-UNKNOWN-XID"),
        ("/api/v1/transactions/tc:x", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions?status=odd", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions?odd=1", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions?older_than=1", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions?cursor=x", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/locks?cursor=x", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/locks/one?resource=r&table=t&key=1", 404, "HF-ADM-NOT-LOCKED"),
        ("/api/v1/locks/one", 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/nothing", 404, "HF-ADM-NO-ROUTE"),
        ("/api/v1/transactions/1/commit", 405, "HF-ADM-NO-METHOD"),
        (&*long, 414, "HF-ADM-URL-TOO-LONG"),
    ];
    for (path, status, code) in get {
        let problem = admin.problem(Method::GET, path, None).await;
        assert_eq!(problem, (status, code.to_owned()), "{path}");
    }
    let resolve = "/api/v1/transactions/1/branches/7/resolve";
    let post = [
        ("/api/v1/transactions/99/rollback", None, 404, "HF-TC-UNKNOWN-XID"),
        ("/api/v1/transactions/99/retry", None, 404, "HF-TC-UNKNOWN-XID"),
        ("/api/v1/transactions/1/rollback", Some("{"), 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions/1/rollback", Some(r#"{"why":""}"#), 400, "HF-ADM-BAD-REQUEST"),
        ("/api/v1/transactions/1/rollback", Some(&*large), 413, "HF-ADM-BODY-TOO-LARGE"),
        (resolve, None, 400, "HF-ADM-BAD-REQUEST"),
        (resolve, Some(r#"{"resolution":"odd"}"#), 400, "HF-ADM-BAD-REQUEST"),
    ];
    for (path, body, status, code) in post {
        let problem = admin.problem(Method::POST, path, body).await;
        assert_eq!(problem, (status, code.to_owned()), "{path} {body:?}");
    }
}

#[tokio::test]
async fn an_endless_request_is_ended() {
    let mut config = roomy();
    config.admin.request_timeout_ms = 50;
    let (server, _admin, _application) = start_with(config).await;
    let mut slow = TcpStream::connect(server.admin_address).await.unwrap();
    let head = "POST /api/v1/transactions/1/commit HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 10\r\n\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504");
}

#[tokio::test]
async fn metrics_carry_every_documented_name() {
    let (_server, admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let other = application.begin("place-order").await;
    let request = registration(&other, 9, "2:42", 1);
    application.client.register_branch(request).await.unwrap_err();
    application.end(&xid, Decision::Commit).await;
    application.finish().await;
    admin.until(&xid, Status::Committed).await;

    let (status, text) = admin.send(Method::GET, "/metrics", None).await;
    assert_eq!(status, StatusCode::OK);
    for name in handfast_server::metrics::names() {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is missing from\n{text}");
        let manual = include_str!("../../../docs/reference/metrics.md");
        assert!(manual.contains(&format!("`{name}`")), "{name} is missing from the page");
    }
    assert!(text.contains("handfast_leading 1"));
    assert!(text.contains(r#"handfast_globals{state="active"}"#));
    let ended = |labels: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("handfast_globals_total{")?.strip_prefix(labels));
        line.unwrap_or_else(|| panic!("{labels}: {text}")).trim().parse::<u64>().unwrap()
    };
    assert!(ended(r#"outcome="committed",reason=""}"#) >= 1);
    // Tests of this process share the recorder; what none has caused is there as well.
    assert_eq!(ended(r#"outcome="rolled_back",reason="branch_unknown"}"#), 0);
}

#[tokio::test]
async fn health_needs_no_token_and_reports_a_shutdown() {
    let tokens = crate::port::TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = handfast_server::serve::Server::start(config).await.unwrap();
    let admin = crate::port::Admin::new(&format!("http://{}", server.admin_address), None);
    for path in ["/livez", "/readyz"] {
        assert_eq!(admin.send(Method::GET, path, None).await.0, StatusCode::OK);
    }
    // Exactly the answers of Seata Server.
    let answer = admin.send(Method::GET, "/health", None).await;
    assert_eq!(answer, (StatusCode::OK, "ok".to_owned()));
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
}

#[tokio::test]
async fn small_limits_are_answered_as_limits() {
    let mut config = roomy();
    config.limits.globals_max = 1;
    let (_server, _admin, mut application) = start_with(config).await;
    application.begin("first").await;
    let status = application.client.begin(handfast_proto::v1::BeginRequest::default()).await;
    let code = status.unwrap_err().metadata().get("handfast-code").unwrap().clone();
    assert_eq!(code, "HF-TC-LIMIT-REACHED");
}
