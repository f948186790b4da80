//! Waiting requests on a real coordinator: the queue of a row, the wait-for graph, refused
//! deadlocks, and what a transaction keeps of its waits.

use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{Decision, RegisterBranchReply, Retryable};
use handfast_server::admin::model::{
    Deadlocks, EventKind, LockQueuePage, ServerStatus, Status, TimelineEntry, TimerKind,
    TransactionDetail, WaitGraph,
};
use handfast_test_services::{until, until_some};
use http::Method;
use tokio::task::JoinHandle;

use crate::application::{Application, RESOURCE, registration};
use crate::command_line::run;
use crate::port::{Admin, roomy, start, start_with};

const WAITERS: usize = 250;

type Waiting = JoinHandle<Result<tonic::Response<RegisterBranchReply>, tonic::Status>>;

/// Begins to wait for a row, and returns when the request stands in the queue.
async fn wait_for(
    application: &Application,
    admin: &Admin,
    xid: &str,
    branch: u64,
    key: &str,
) -> Waiting {
    let before = waiters(admin).await;
    let mut client = application.client.clone();
    let request = registration(xid, branch, key, 60_000);
    let waiting = tokio::spawn(async move { client.register_branch(request).await });
    until("it waits", async || waiters(admin).await > before).await;
    waiting
}

async fn waiters(admin: &Admin) -> usize {
    admin.get::<ServerStatus>("/api/v1/status").await.waiters
}

/// Every page is small, however long the queue is, and together they are the queue.
#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_row_comes_in_pages() {
    let mut config = roomy();
    config.admin.page_items_max = 100;
    let (server, admin, mut application) = start_with(config).await;
    let holder = application.begin("first").await;
    application.register(&holder, 1, "2:42").await.unwrap();
    let (mut begun, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..WAITERS {
        let waiter = application.begin("second").await;
        let mut client = application.client.clone();
        let request = registration(&waiter, 2 + number as u64, "2:42", 60_000);
        waiting.push(tokio::spawn(async move { client.register_branch(request).await }));
        begun.push(waiter);
    }
    until("all wait", async || waiters(&admin).await >= WAITERS).await;

    let path = format!("/api/v1/locks/queue?resource={RESOURCE}&table=stock&key=42");
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page: LockQueuePage = admin.get(&format!("{path}&limit=40{cursor}")).await;
        assert!(page.items.len() <= 40);
        assert_eq!(page.waiting, WAITERS);
        listed.extend(page.items.into_iter().filter_map(|waiter| waiter.xid));
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={next}");
    }
    listed.sort();
    begun.sort();
    assert_eq!(listed, begun);
    let page: LockQueuePage = admin.get(&format!("{path}&limit=100000")).await;
    assert_eq!(page.items.len(), 100, "the limit of the configuration holds for any request");

    let queue = format!("lock queue {RESOURCE} stock 42 --limit 3");
    let text = String::from_utf8(run(server.admin_address, &queue).await.stdout).unwrap();
    assert!(text.contains("3 of 250 are shown") && text.contains("more: --cursor"), "{text}");
    let free = format!("/api/v1/locks/queue?resource={RESOURCE}&table=stock&key=43");
    let problem = admin.problem(Method::GET, &free, None).await;
    assert_eq!(problem, (404, "HF-ADM-NOT-LOCKED".to_owned()));
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_graph_shows_who_waits_for_whom() {
    let (server, admin, mut application) = start().await;
    let holder = application.begin("first").await;
    application.register(&holder, 1, "2:42").await.unwrap();
    let second = application.begin("second").await;
    let _second = wait_for(&application, &admin, &second, 2, "2:42").await;
    let third = application.begin("third").await;
    let _third = wait_for(&application, &admin, &third, 3, "2:42").await;

    let graph: WaitGraph = admin.get("/api/v1/locks/graph").await;
    let edges: Vec<_> =
        graph.edges.iter().map(|edge| (&*edge.from, &*edge.to, edge.holds)).collect();
    let expected =
        [(&*second, &*holder, true), (&*third, &*holder, true), (&*third, &*second, false)];
    assert_eq!(edges, expected);
    assert_eq!(graph.edges[0].target.table.as_deref(), Some("stock"));
    assert_eq!(graph.edges[0].target.canonical_key.as_deref(), Some("2:42"));
    let nodes: Vec<_> =
        graph.nodes.iter().map(|node| (&*node.xid, &*node.name, node.waits)).collect();
    let expected =
        [(&*holder, "first", false), (&*second, "second", true), (&*third, "third", true)];
    assert_eq!(nodes, expected);
    assert_eq!(graph.next, None);

    let part: WaitGraph = admin.get("/api/v1/locks/graph?limit=1").await;
    let [edge] = &part.edges[..] else { panic!("{:?}", part.edges) };
    assert_eq!((&*edge.from, &*edge.to), (&*second, &*holder));
    let path = format!("/api/v1/locks/graph?limit=1&cursor={}", part.next.unwrap());
    let part: WaitGraph = admin.get(&path).await;
    assert_eq!((part.edges.len(), part.next), (2, None));

    let text = run(server.admin_address, "lock graph").await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("holds it") && text.contains("is before it"), "{text}");
    let detail = admin.show(&third).await;
    let [wait] = &detail.waits[..] else { panic!("{:?}", detail.waits) };
    assert_eq!(wait.behind, [&*holder, &*second]);
    assert_eq!(wait.target.key.as_deref(), Some("42"));
    assert_eq!(detail.to_come[0].kind, TimerKind::Deadline);
    let problem = admin.problem(Method::GET, "/api/v1/locks/graph?cursor=x", None).await;
    assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_deadlock_is_shown_with_its_cycle() {
    let (server, admin, mut application) = start().await;
    assert_eq!(admin.get::<Deadlocks>("/api/v1/locks/deadlocks").await.items, []);
    let first = application.begin("first").await;
    let second = application.begin("second").await;
    application.register(&first, 1, "1:1").await.unwrap();
    application.register(&second, 2, "1:2").await.unwrap();
    let _waiting = wait_for(&application, &admin, &first, 3, "1:2").await;
    let request = registration(&second, 4, "1:1", 60_000);
    let refused = application.client.register_branch(request).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-DEADLOCK");

    let deadlocks: Deadlocks = admin.get("/api/v1/locks/deadlocks").await;
    let [deadlock] = &deadlocks.items[..] else { panic!("{deadlocks:?}") };
    assert_eq!((&*deadlock.xid, deadlock.length), (&*second, 2));
    let cycle: Vec<_> = deadlock
        .cycle
        .iter()
        .map(|member| (&*member.xid, &*member.name, member.target.key.as_deref()))
        .collect();
    assert_eq!(cycle, [(&*second, "second", Some("1")), (&*first, "first", Some("2"))]);
    let text = run(server.admin_address, "lock deadlocks").await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(&format!("{second} was refused")), "{text}");
    let course = admin.show(&second).await.timeline;
    let what = format!("request refused: deadlock: {second} waits for {first} waits for {second}");
    assert!(course.iter().any(|entry| entry.what == what), "{course:?}");
}

/// The whole course of a branch that waited and whose rollback failed twice, live and remembered.
#[tokio::test(flavor = "multi_thread")]
async fn the_course_of_a_transaction_is_kept() {
    let (server, admin, mut application) = start().await;
    let holder = application.begin("first").await;
    application.register(&holder, 1, "2:42").await.unwrap();
    let xid = application.begin("second").await;
    let waiting = wait_for(&application, &admin, &xid, 2, "2:42").await;
    application.end(&holder, Decision::Commit).await;
    waiting.await.unwrap().unwrap();
    application.finish().await;
    application.end(&xid, Decision::RollBack).await;
    for error in ["database is away", "still away"] {
        let (call, _branch) = application.asked().await;
        application.answer(&call, Outcome::Retryable(Retryable { error: error.to_owned() })).await;
    }
    let attempts = |detail: &TransactionDetail| {
        let failed = |entry: &&TimelineEntry| entry.kind == EventKind::AttemptFailed;
        detail.timeline.iter().filter(failed).map(|entry| entry.what.clone()).collect::<Vec<_>>()
    };
    let detail = until_some("both attempts are recorded", async || {
        Some(admin.show(&xid).await).filter(|detail| attempts(detail).len() == 2)
    })
    .await;
    let timer = &detail.to_come[0];
    assert!(matches!(timer.kind, TimerKind::Attempt | TimerKind::Answer), "{timer:?}");
    assert!(timer.what.starts_with("branch 2: attempt 3"), "{timer:?}");

    application.finish().await;
    let detail = admin.until(&xid, Status::RolledBack).await;
    assert_eq!(
        attempts(&detail),
        ["branch 2: attempt 1 failed: database is away", "branch 2: attempt 2 failed: still away"]
    );
    let kinds: Vec<_> = detail.timeline.iter().map(|entry| entry.kind).collect();
    let expected = [
        EventKind::Begun,
        EventKind::LockWait,
        EventKind::Registered,
        EventKind::Decided,
        EventKind::AttemptFailed,
        EventKind::AttemptFailed,
        EventKind::Finished,
        EventKind::Ended,
    ];
    assert_eq!(kinds, expected);
    let wait = &detail.timeline[1];
    let number = holder.rsplit_once(':').unwrap().1;
    assert_eq!((wait.branch.as_deref(), wait.by.as_deref()), (Some("2"), Some(number)));
    assert!(wait.ms.is_some() && wait.what.contains("rows granted after"), "{wait:?}");
    assert_eq!(detail.to_come, []);

    let text = run(server.admin_address, &format!("tx show {xid}")).await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("branch 2: attempt 2 failed: still away"), "{text}");
}
