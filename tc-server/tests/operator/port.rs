//! A coordinator inside the test, and a client of its admin API.

use handfast_server::admin::model::{Problem, Status, TransactionDetail};
use handfast_server::config::Config;
use handfast_server::security::{NewToken, Role};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::until_some;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;

use crate::application::Application;

/// A configuration whose limits no test reaches by accident, except for small pages.
pub(crate) fn roomy() -> Config {
    let mut config = Config::tiny();
    config.limits = handfast_core::Limits::default();
    // Longer than the connections take to end on a busy machine.
    config.shutdown_limit_ms = 30_000;
    config
}

pub(crate) async fn start() -> (RunningServer, Admin, Application) {
    start_with(roomy()).await
}

pub(crate) async fn start_with(config: Config) -> (RunningServer, Admin, Application) {
    let server = Server::start(config).await.unwrap();
    let admin = Admin::new(&format!("http://{}", server.admin_address), None);
    let application = Application::connect(server.grpc_address).await;
    (server, admin, application)
}

/// A client of the admin port.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) token: Option<String>,
}

impl Admin {
    pub(crate) fn new(base: &str, token: Option<String>) -> Self {
        // Fails only if another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { http, base: base.to_owned(), token }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
    ) -> (StatusCode, String) {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    pub(crate) async fn get<Answer: DeserializeOwned>(&self, path: &str) -> Answer {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&str>) -> (StatusCode, String) {
        self.send(Method::POST, path, body).await
    }

    /// Returns status and code of a request that fails.
    pub(crate) async fn problem(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
    ) -> (u16, String) {
        let (status, body) = self.send(method, path, body).await;
        let problem: Problem = serde_json::from_str(&body).unwrap_or_else(|_| {
            panic!("{path} is answered {status} with {body}, which is no problem document")
        });
        (status.as_u16(), problem.code)
    }

    pub(crate) async fn show(&self, xid: &str) -> TransactionDetail {
        self.get(&format!("/api/v1/transactions/{xid}")).await
    }

    /// Polls until the transaction has this status: an outcome has no reply to wait for.
    pub(crate) async fn until(&self, xid: &str, status: Status) -> TransactionDetail {
        until_some("the transaction has the status", async || {
            let detail = self.show(xid).await;
            (detail.transaction.status == status).then_some(detail)
        })
        .await
    }
}

/// A tokens file with one token of each role.
pub(crate) struct TokensFile {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) client: String,
    pub(crate) viewer: String,
    pub(crate) operator: String,
}

impl TokensFile {
    pub(crate) fn draw() -> Self {
        let draw = |name: &str, role| NewToken::draw(name, role).unwrap();
        let client = draw("orders", Role::Client);
        let viewer = draw("grafana", Role::Viewer);
        let operator = draw("alice", Role::Operator);
        let directory = tempfile::tempdir().unwrap();
        let lines = [&*client.line, &viewer.line, &operator.line].join("\n");
        std::fs::write(directory.path().join("tokens"), lines).unwrap();
        let [client, viewer, operator] = [client, viewer, operator].map(|drawn| drawn.token);
        Self { directory, client, viewer, operator }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("tokens")
    }
}
