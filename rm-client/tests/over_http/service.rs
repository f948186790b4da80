//! A service that does not use the library: an HTTP server that checks signatures and keeps a
//! fence, as a service in any language would.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use handfast_server::over_http::{Participant, Prefix, Secret, Settings, SignedRequest};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &[u8] = b"known to coordinator and service";

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) xid: String,
    pub(crate) branch: String,
    pub(crate) operation: String,
    pub(crate) body: String,
    pub(crate) is_signed: bool,
}

/// A running service. Dropping it closes its port.
pub(crate) struct Service {
    pub(crate) base: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Inside>,
    changed: Notify,
}

#[derive(Default)]
struct Inside {
    seen: Vec<Seen>,
    /// The behaviours for the next requests of each operation.
    scripted: VecDeque<(&'static str, ScriptedAnswer)>,
    /// The last state of each branch's fence.
    fence: BTreeMap<(String, String), &'static str>,
    /// The operations that took effect, in order.
    effects: Vec<String>,
}

/// How the service behaves for one request.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedAnswer {
    /// Answers with this status and body, and does nothing.
    Answer(u16, String),
    /// Redirects the caller.
    Redirect(String),
    /// Refuses for good: late calls are refused too.
    Refuse(String),
    /// Executes the operation, and answers with this status and body.
    DoneBut(u16, String),
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/handfast/", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { base, shared, server }
    }

    /// Returns settings that allow the coordinator to call this service, with small limits.
    pub(crate) fn settings(&self) -> Settings {
        let prefix = Prefix::parse(&self.base).unwrap();
        Settings {
            participants: vec![Participant { prefix, secret: Secret::new(SECRET) }],
            timeout: Duration::from_secs(25),
            response_bytes_max: 1_000,
            calls_max: 4,
        }
    }

    pub(crate) fn url(&self, action: &str) -> String {
        format!("{}{action}", self.base)
    }

    /// Sets the behaviour for the next request of this operation.
    pub(crate) fn next(&self, operation: &'static str, answer: ScriptedAnswer) {
        self.shared.state.lock().unwrap().scripted.push_back((operation, answer));
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.state.lock().unwrap().seen.clone()
    }

    /// Returns the requested operations.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.operation).collect()
    }

    /// The operations that took effect, in order.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().effects.clone()
    }

    /// Waits for this number of requests, and returns their operations.
    pub(crate) async fn until_asked(&self, count: usize) -> Vec<String> {
        loop {
            let changed = self.shared.changed.notified();
            let asked = self.asked();
            if asked.len() >= count {
                return asked;
            }
            changed.await;
        }
    }

    /// Waits until this number of operations has taken effect.
    pub(crate) async fn until_effects(&self, count: usize) -> Vec<String> {
        loop {
            let changed = self.shared.changed.notified();
            let effects = self.effects();
            if effects.len() >= count {
                return effects;
            }
            changed.await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let seen = Seen {
        path: head.uri.path().to_owned(),
        xid: text(&head.headers, "handfast-xid"),
        branch: text(&head.headers, "handfast-branch"),
        operation: text(&head.headers, "handfast-operation"),
        body: String::from_utf8(body.to_vec()).unwrap(),
        is_signed: is_signed(head.method.as_str(), head.uri.path(), &head.headers, &body),
    };
    let response = shared.state.lock().unwrap().answer(seen);
    shared.changed.notify_one();
    response
}

impl Inside {
    fn answer(&mut self, seen: Seen) -> Response {
        self.seen.push(seen.clone());
        let at = self.scripted.iter().position(|(operation, _)| *operation == seen.operation);
        match at.and_then(|at| self.scripted.remove(at)) {
            Some((_, ScriptedAnswer::Answer(status, body))) => respond(status, body),
            Some((_, ScriptedAnswer::Redirect(to))) => {
                (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response()
            }
            Some((_, ScriptedAnswer::Refuse(message))) => {
                self.fence.entry((seen.xid, seen.branch)).or_insert("barred");
                respond(409, refusal(&message))
            }
            Some((_, ScriptedAnswer::DoneBut(status, body))) => {
                self.carry_out(&seen);
                respond(status, body)
            }
            None => self.carry_out(&seen),
        }
    }

    /// Executes an operation behind the fence: each takes effect once, and an empty cancel bars a
    /// late try.
    fn carry_out(&mut self, seen: &Seen) -> Response {
        let known = self.fence.entry((seen.xid.clone(), seen.branch.clone())).or_default();
        match (seen.operation.as_str(), *known) {
            ("try" | "action", "") => *known = "tried",
            ("confirm", "tried") => *known = "confirmed",
            ("cancel" | "compensation", "tried") => *known = "cancelled",
            ("cancel" | "compensation", "") => {
                *known = "barred";
                return respond(200, String::new());
            }
            ("try" | "action", "tried")
            | ("confirm", "confirmed")
            | ("cancel" | "compensation", "cancelled" | "barred") => {
                return respond(200, String::new());
            }
            ("try" | "action", "cancelled" | "barred") => return respond(409, refusal("too late")),
            (operation, known) => return respond(500, format!("{operation} of one {known}")),
        }
        self.effects.push(format!("{} {}", seen.operation, seen.path));
        respond(200, format!(r#"{{"from":"{}"}}"#, seen.path))
    }
}

pub(crate) fn refused(message: &str) -> ScriptedAnswer {
    ScriptedAnswer::Refuse(message.to_owned())
}

fn refusal(message: &str) -> String {
    format!(r#"{{"code":"refused","message":"{message}"}}"#)
}

fn respond(status: u16, body: String) -> Response {
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

fn is_signed(method: &str, path: &str, headers: &HeaderMap, body: &[u8]) -> bool {
    let (xid, operation) = (text(headers, "handfast-xid"), text(headers, "handfast-operation"));
    let Ok(branch) = text(headers, "handfast-branch").parse() else { return false };
    let Ok(timestamp_ms) = text(headers, "handfast-timestamp").parse() else { return false };
    let (xid, operation) = (&*xid, &*operation);
    let signed = SignedRequest { method, path, xid, branch, operation, timestamp_ms, body };
    signed.by(&Secret::new(SECRET)) == text(headers, "handfast-signature")
}
