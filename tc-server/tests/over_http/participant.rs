//! A service with points, a fence and a gate before its answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use handfast_server::over_http::{Secret, SignedRequest};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::SECRET;

/// The service. It outlives the coordinator.
pub(crate) struct Points {
    pub(crate) prefix: String,
    shared: Arc<Shared>,
    /// Requests that are executed and not answered yet.
    waiting: mpsc::UnboundedReceiver<Waiting>,
}

struct Shared {
    accounts: Mutex<Accounts>,
    gate: mpsc::UnboundedSender<Waiting>,
}

/// One request before its answer.
pub(crate) struct Waiting {
    pub(crate) operation: String,
    pub(crate) traceparent: Option<String>,
    pub(crate) answer: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) free: i64,
    pub(crate) held: i64,
    pub(crate) taken: i64,
}

#[derive(Default)]
struct Accounts {
    balance: Balance,
    fence: BTreeMap<(String, String), String>,
}

impl Points {
    /// Starts the service with a hundred points.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let prefix = format!("http://{}/", listener.local_addr().unwrap());
        let (gate, waiting) = mpsc::unbounded_channel();
        let balance = Balance { free: 100, ..Balance::default() };
        let accounts = Mutex::new(Accounts { balance, ..Accounts::default() });
        let shared = Arc::new(Shared { accounts, gate });
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { prefix, shared, waiting }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}debit", self.prefix)
    }

    pub(crate) fn balance(&self) -> Balance {
        self.shared.accounts.lock().unwrap().balance
    }

    /// Waits for the next request of this operation that is executed and not answered yet.
    pub(crate) async fn carried_out(&mut self, operation: &str) -> Waiting {
        let waiting = self.waiting.recv().await.unwrap();
        assert_eq!(waiting.operation, operation);
        waiting
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> StatusCode {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let text = |name| head.headers[name].to_str().unwrap();
    let signed = SignedRequest {
        method: "POST",
        path: head.uri.path(),
        xid: text("handfast-xid"),
        branch: text("handfast-branch").parse().unwrap(),
        operation: text("handfast-operation"),
        timestamp_ms: text("handfast-timestamp").parse().unwrap(),
        body: &body,
    };
    if signed.by(&Secret::new(SECRET.as_bytes())) != text("handfast-signature") {
        return StatusCode::UNAUTHORIZED;
    }
    let points = std::str::from_utf8(&body).unwrap().parse().unwrap();
    let branch = (signed.xid.to_owned(), text("handfast-branch").to_owned());
    let operation = signed.operation.to_owned();
    let status = shared.accounts.lock().unwrap().carry_out(&operation, branch, points);
    let (answer, answered) = oneshot::channel();
    // The send fails when the test is over.
    let traceparent = head.headers.get("traceparent");
    let traceparent = traceparent.map(|text| text.to_str().unwrap().to_owned());
    if shared.gate.send(Waiting { operation, traceparent, answer }).is_ok() {
        drop(answered.await);
    }
    status
}

impl Accounts {
    fn carry_out(&mut self, operation: &str, branch: (String, String), points: i64) -> StatusCode {
        let known = self.fence.get(&branch).map_or("", String::as_str);
        let Balance { free, held, taken } = &mut self.balance;
        match (operation, known) {
            ("try", "") => (*free, *held) = (*free - points, *held + points),
            ("confirm", "try") => (*held, *taken) = (*held - points, *taken + points),
            ("cancel", "try") => (*free, *held) = (*free + points, *held - points),
            ("cancel", "") => {}
            (operation, known) if operation == known => {}
            (_, _) => return StatusCode::CONFLICT,
        }
        self.fence.insert(branch, operation.to_owned());
        StatusCode::NO_CONTENT
    }
}
