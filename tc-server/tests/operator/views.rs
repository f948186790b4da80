//! Views of large states: answers stay small, searches continue with a cursor, and few run at a
//! time.

use futures::future::join_all;
use handfast_proto::v1::try_branch_reply::Result as Tried;
use handfast_proto::v1::{Decision, TryBranchRequest};
use handfast_server::admin::model::{
    Lock, LockPage, ServerStatus, Status, TransactionDetail, TransactionPage,
};
use handfast_server::config::HttpParticipant;
use handfast_test_services::until;
use http::header::RETRY_AFTER;

use crate::application::{Application, RESOURCE, registration};
use crate::command_line::run;
use crate::port::{roomy, start, start_with};

const WAITERS: usize = 600;

/// Regression: each answer listed all waiters, whatever the limit, and took the engine as long to
/// build, so that a few such requests stopped all clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_many_waiters_has_a_small_answer() {
    let (_server, admin, mut application) = start().await;
    let holder = application.begin("first").await;
    application.register(&holder, 1, "2:42").await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let waiter = application.begin("second").await;
        let mut client = application.client.clone();
        let request = registration(&waiter, 2 + number as u64, "2:42", 60_000);
        waiting.push(tokio::spawn(async move { client.register_branch(request).await }));
    }
    let waiting_now = async || admin.get::<ServerStatus>("/api/v1/status").await.waiters;
    until("all wait", async || waiting_now().await >= WAITERS).await;

    let one = format!("/api/v1/locks/one?resource={RESOURCE}&table=stock&key=42");
    let one: Lock = admin.get(&one).await;
    let page: LockPage = admin.get("/api/v1/locks?limit=1").await;
    for lock in [&one, &page.items[0]] {
        assert_eq!((lock.queue.len(), lock.waiting), (100, WAITERS));
        assert_eq!((lock.holders.len(), lock.holding), (1, 1));
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn branches(application: &mut Application, count: u64) -> String {
    let xid = application.begin("wide").await;
    for branch in 1..=count {
        application.register(&xid, branch, &format!("4:{branch:04}")).await.unwrap();
    }
    xid
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_shown_in_parts() {
    let (server, admin, mut application) = start().await;
    let xid = branches(&mut application, 250).await;
    let (mut shown, mut begun, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let path = format!("/api/v1/transactions/{xid}?limit=90{cursor}");
        let part: TransactionDetail = admin.get(&path).await;
        assert!(part.branches.len() <= 90);
        assert_eq!(part.transaction.branch_count, 250);
        begun += part.timeline.iter().filter(|entry| entry.what == "begun").count();
        shown.extend(part.branches.into_iter().map(|branch| branch.id));
        let Some(next) = part.next else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(shown, (1..=250).map(|id| id.to_string()).collect::<Vec<_>>());
    assert_eq!(begun, 1, "the transaction's own entries come once");
    assert_eq!(admin.show(&xid).await.branches.len(), 100);

    let output = run(server.admin_address, &format!("tx show {xid} --json")).await;
    let whole: TransactionDetail = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((whole.branches.len(), whole.next), (250, None));
    assert!(whole.timeline.is_sorted_by_key(|entry| &entry.at));
}

/// The only match is beyond the records that one request examines: the page is empty and has a
/// cursor.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_continues_after_an_empty_page() {
    let mut config = roomy();
    config.admin.scan_records_max = 10;
    let (server, admin, mut application) = start_with(config).await;
    let rare = application.begin("rare").await;
    for _ in 0..35 {
        application.begin("place-order").await;
    }
    let first: TransactionPage = admin.get("/api/v1/transactions?name=rare").await;
    assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
    let (mut found, mut pages, mut next) = (Vec::new(), 1, first.next);
    while let Some(cursor) = next {
        let path = format!("/api/v1/transactions?name=rare&cursor={cursor}");
        let page: TransactionPage = admin.get(&path).await;
        found.extend(page.items.into_iter().map(|item| item.xid));
        (pages, next) = (pages + 1, page.next);
    }
    assert_eq!((&*found, pages), (&[rare.clone()][..], 4));

    let output = run(server.admin_address, "tx ls --name rare").await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&rare) && !text.contains("more:"), "{text}");
    let output = run(server.admin_address, "tx ls --name absent").await;
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "no transactions\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excess_view_is_refused_with_a_retry_time() {
    let mut config = roomy();
    config.admin.views_max = 1;
    let (_server, admin, mut application) = start_with(config).await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let ask = async || {
        let path = format!("{}/api/v1/transactions?name=absent", admin.base);
        admin.http.get(path).send().await.unwrap()
    };
    // Whether two run at the same time depends on the network.
    let refused = loop {
        let answers = join_all((0..20).map(|_| ask())).await;
        if let Some(refused) = answers.into_iter().find(|it| it.status().as_u16() == 429) {
            break refused;
        }
    };
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    let problem: handfast_server::admin::model::Problem = refused.json().await.unwrap();
    assert_eq!(problem.code, "HF-ADM-TOO-MANY-VIEWS");
    // Actions and cheap requests are not limited, and the permit is returned.
    application.end(&xid, Decision::RollBack).await;
    application.finish().await;
    admin.get::<ServerStatus>("/api/v1/status").await;
    assert_eq!(admin.until(&xid, Status::RolledBack).await.transaction.xid, xid);
}

/// Each attempt at the try of a participant over HTTP is told with its error.
#[tokio::test(flavor = "multi_thread")]
async fn failed_tries_are_in_the_course() {
    let folder = tempfile::tempdir().unwrap();
    let secret_file = folder.path().join("points.key");
    std::fs::write(&secret_file, "known to coordinator and service").unwrap();
    // Nothing listens there once the listener is dropped.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let prefix = format!("http://{free}/");
    let mut config = roomy();
    config.http.participants = vec![HttpParticipant { prefix: prefix.clone(), secret_file }];
    let (_server, admin, mut application) = start_with(config).await;
    let xid = application.begin("buy").await;
    let request = TryBranchRequest {
        xid: xid.clone(),
        branch_id: 7,
        resource_id: format!("{prefix}points"),
        input: b"30".to_vec(),
        timeout_ms: 600,
        traceparent: String::new(),
    };
    let reply = application.client.try_branch(request).await.unwrap().into_inner();
    assert!(matches!(reply.result, Some(Tried::Unanswered(_))), "{reply:?}");
    let told = |detail: &TransactionDetail| {
        let of_branch = detail.timeline.iter().filter(|entry| entry.branch.is_some());
        of_branch.map(|entry| entry.what.clone()).collect::<Vec<_>>()
    };
    let timeline = told(&admin.show(&xid).await);
    // Of attempts that fail in the same way, the first and the last.
    assert!(timeline[1].starts_with("branch 7: attempt 1 failed: try: "), "{timeline:?}");
    assert!(timeline[2].contains(" failed: try: http"), "{timeline:?}");
    application.end(&xid, Decision::RollBack).await;
    until("the cancel fails too", async || admin.show(&xid).await.branches[0].attempts >= 1).await;
    let timeline = told(&admin.show(&xid).await);
    assert!(timeline.iter().any(|it| it.contains("/cancel: ")), "{timeline:?}");
}
