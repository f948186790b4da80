//! Named locks: an operator's views of them, and how an operator ends a lease.

use futures::StreamExt as _;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{
    AcquireLockRequest, ClientFrame, ClientMessage, Hello, LockShare, LockToken, RenewLocksRequest,
    ServerFrame, acquire_lock_reply,
};
use handfast_server::admin::model::{NamedLock, NamedLockPage, ReleaseReply};
use http::{Method, StatusCode};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::application::Application;
use crate::command_line::run;
use crate::port::{roomy, start, start_with};

/// One stream of one client.
struct Client {
    frames: mpsc::UnboundedSender<ClientFrame>,
    answers: Streaming<ServerFrame>,
}

impl Client {
    async fn connect(application: &mut Application) -> Self {
        let (frames, sent) = mpsc::unbounded_channel();
        let hello = Hello { client_id: "locks-1".to_owned(), ..Hello::default() };
        let send = |id, body| frames.send(frame(id, body)).unwrap();
        send(1, Ask::Hello(hello));
        let sent = tokio_stream::wrappers::UnboundedReceiverStream::new(sent);
        let answers = application.client.connect(sent).await.unwrap().into_inner();
        let mut client = Self { frames, answers };
        assert!(matches!(client.answer().await, Answer::Hello(_)));
        client
    }

    fn acquire(&self, number: u64, name: &str, of: u32, wait_ms: u64) {
        let request = AcquireLockRequest {
            name: name.to_owned(),
            token: Some(token(number)),
            share: Some(LockShare { of }),
            label: format!("job-{number}"),
            lease_ms: 60_000,
            wait_ms,
            ..AcquireLockRequest::default()
        };
        self.frames.send(frame(number, Ask::AcquireLock(request))).unwrap();
    }

    async fn granted(&mut self) {
        let Answer::AcquireLock(reply) = self.answer().await else { panic!("another answer") };
        assert!(matches!(reply.result, Some(acquire_lock_reply::Result::Granted(_))));
    }

    async fn is_held(&mut self, number: u64) -> bool {
        let request = RenewLocksRequest { tokens: vec![token(number)], lease_ms: 60_000 };
        self.frames.send(frame(99, Ask::RenewLocks(request))).unwrap();
        let Answer::RenewLocks(reply) = self.answer().await else { panic!("another answer") };
        reply.held == [true]
    }

    /// Waits for the next answer. Each comes in a frame of its own here.
    async fn answer(&mut self) -> Answer {
        let mut frame = self.answers.next().await.unwrap().unwrap();
        assert_eq!(frame.messages.len(), 1, "{frame:?}");
        frame.messages.remove(0).body.unwrap()
    }
}

fn frame(id: u64, body: Ask) -> ClientFrame {
    ClientFrame { messages: vec![ClientMessage { id, body: Some(body) }] }
}

fn token(number: u64) -> LockToken {
    LockToken { client: vec![0xab; 16], number }
}

#[tokio::test]
async fn named_locks_are_listed_and_shown() {
    let (_server, admin, mut application) = start().await;
    let mut client = Client::connect(&mut application).await;
    let none: NamedLockPage = admin.get("/api/v1/named-locks").await;
    assert_eq!(none.items, []);
    client.acquire(2, "orders/42", 0, 0);
    client.granted().await;
    client.acquire(3, "orders/42", 0, 60_000);
    client.acquire(4, "book", u32::MAX, 0);
    client.granted().await;
    client.acquire(5, "pool", 3, 0);
    client.granted().await;

    let lock: NamedLock = admin.get("/api/v1/named-locks/one?name=orders/42").await;
    let [lease] = &lock.leases[..] else { panic!("{lock:?}") };
    assert_eq!((&*lease.label, &*lease.share), ("job-2", "all"));
    assert_eq!(lease.token, format!("{}.2", "ab".repeat(16)));
    assert!(lease.left_ms.unwrap() <= 60_000 && lease.fence.parse::<u64>().unwrap() > 0);
    assert_eq!((lock.waiting, &*lock.queue[0].label), (1, "job-3"));

    let first: NamedLockPage = admin.get("/api/v1/named-locks?limit=2").await;
    let names = |page: &NamedLockPage| page.items.iter().map(|it| it.name.clone()).collect();
    let listed: Vec<String> = names(&first);
    assert_eq!(listed, ["book", "orders/42"]);
    assert_eq!(first.items[0].leases[0].share, "read");
    let next = first.next.unwrap();
    let rest: NamedLockPage = admin.get(&format!("/api/v1/named-locks?cursor={next}")).await;
    let listed: Vec<String> = names(&rest);
    assert_eq!((listed, rest.next), (vec!["pool".to_owned()], None));
    assert_eq!(rest.items[0].leases[0].share, "1 of 3");

    let path = "/api/v1/named-locks/one?name=nothing";
    let problem = admin.problem(Method::GET, path, None).await;
    assert_eq!(problem, (404, "HF-TC-LOCK-NOT-HELD".to_owned()));
}

#[tokio::test]
async fn an_operator_ends_a_lease_on_the_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let mut config = roomy();
    config.security.audit_log = Some(path.clone());
    let (_server, admin, mut application) = start_with(config).await;
    let mut client = Client::connect(&mut application).await;
    client.acquire(2, "orders/42", 0, 0);
    client.granted().await;
    client.acquire(3, "orders/42", 0, 60_000);

    let release = "/api/v1/named-locks/release";
    let body = r#"{"name":"orders/42","reason":"its host is gone"}"#;
    let (status, reply) = admin.post(release, Some(body)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(serde_json::from_str::<ReleaseReply>(&reply).unwrap().leases, 1);
    // The waiter has the lock, and the earlier holder is notified.
    client.granted().await;
    assert!(!client.is_held(2).await);
    assert!(client.is_held(3).await);

    let other = format!(r#"{{"name":"orders/42","token":"{}.2"}}"#, "ab".repeat(16));
    let problem = admin.problem(Method::POST, release, Some(&other)).await;
    assert_eq!(problem, (404, "HF-TC-LOCK-NOT-HELD".to_owned()));
    let wrong = r#"{"name":"orders/42","token":"7"}"#;
    let problem = admin.problem(Method::POST, release, Some(wrong)).await;
    assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()));

    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &serde_json::Value| {
        ["action", "stage", "outcome", "lock", "detail"].map(|field| line[field].to_string())
    };
    let asked = ["\"release\"", "\"asked\"", "null", "\"orders/42\"", "\"its host is gone\""];
    assert_eq!(told(&lines[0]), asked);
    assert_eq!(told(&lines[1])[1..3], ["\"answered\"", "\"done\""]);
    assert_eq!(told(&lines[3])[1..3], ["\"answered\"", "\"HF-TC-LOCK-NOT-HELD\""]);
    assert_eq!(lines.len(), 4, "a malformed request is no action: {text}");
}

/// Names with a meaning in a shell, in a URL, in a terminal, or as an option.
const ODD_NAMES: [&str; 5] = ["\u{1b}[2Jx", "a b", "it's \"quoted\"", "--limit", "é&x=1#?%"];

async fn hold_odd_names(application: &mut Application) -> Client {
    let mut client = Client::connect(application).await;
    for (number, name) in (2..).zip(ODD_NAMES) {
        client.acquire(number, name, 0, 0);
        client.granted().await;
    }
    client
}

fn odd_names_sorted() -> Vec<&'static str> {
    let mut names = ODD_NAMES.to_vec();
    names.sort_unstable();
    names
}

// Lost were pages: the cursor was the last lock's name, unencoded.
#[tokio::test]
async fn pages_of_named_locks_work_for_any_name() {
    let (_server, admin, mut application) = start().await;
    let _client = hold_odd_names(&mut application).await;
    let mut listed = Vec::new();
    let mut path = "/api/v1/named-locks?limit=1".to_owned();
    loop {
        let page: NamedLockPage = admin.get(&path).await;
        listed.extend(page.items.into_iter().map(|lock| lock.name));
        let Some(next) = page.next else { break };
        assert!(next.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{next}");
        path = format!("/api/v1/named-locks?limit=1&cursor={next}");
    }
    assert_eq!(listed, odd_names_sorted());
    let problem = admin.problem(Method::GET, "/api/v1/named-locks?cursor=pool", None).await;
    assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_pages_named_locks_of_any_name() {
    let (server, _admin, mut application) = start().await;
    let _client = hold_odd_names(&mut application).await;
    let mut shown = Vec::new();
    let mut arguments = "lease ls --limit 1".to_owned();
    loop {
        let output = run(server.admin_address, &arguments).await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments}: {text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let lock = text.lines().nth(1).unwrap();
        shown.push(lock.split("  job-").next().unwrap().trim().to_owned());
        let Some((_, cursor)) = text.split_once("\nmore: --cursor ") else { break };
        arguments = format!("lease ls --limit 1 --cursor {}", cursor.trim_end());
    }
    let escaped = odd_names_sorted().into_iter().map(|name| name.replace('\u{1b}', "\\u{1b}"));
    assert_eq!(shown, escaped.collect::<Vec<_>>());
}
