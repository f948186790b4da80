//! Nodes of one cluster, each with ports of its own, and the requests that tests send them.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{
    BeginRequest, Decision, EndReply, EndRequest, GlobalStatus, LockMode, RegisterBranchRequest,
    RowKeys,
};
use handfast_server::admin::model::{Cluster as ClusterView, NodeStanding};
use handfast_server::config::Config;
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::{ClusterStore, Wire, cluster_config};
use http::StatusCode;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::cut::behind_a_wire;
use crate::shared::Shared;

/// The longest that a test waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// No request waits for a change of leader.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(20);

/// A store that coordinators share.
pub(crate) struct Cluster {
    store: ClusterStore,
    folder: TempDir,
}

/// The requests that tests send to one coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    http: reqwest::Client,
}

/// One coordinator, in the test's process.
pub(crate) struct Node {
    pub(crate) server: RunningServer,
    requests: Requests,
}

impl Cluster {
    pub(crate) async fn new<S: Shared>() -> Self {
        Self { store: S::create().await, folder: TempDir::new().unwrap() }
    }

    /// Starts a node, which leads if no other does.
    pub(crate) async fn start(&self, name: &str) -> Node {
        self.start_on(&self.store, name).await
    }

    /// Starts a node whose connection to the store can be cut.
    pub(crate) async fn start_behind_a_wire(&self, name: &str) -> (Node, Arc<Wire>) {
        let (store, wire) = behind_a_wire(&self.store);
        (self.start_on(&store, name).await, wire)
    }

    async fn start_on(&self, store: &ClusterStore, name: &str) -> Node {
        let server = Server::launch(cluster_config(store, self.folder.path(), name)).await;
        let server = server.unwrap();
        let requests = Requests::to(server.grpc_address, server.admin_address);
        Node { server, requests }
    }

    /// Returns the configuration of a node, and the folder of its files.
    pub(crate) fn config(&self, name: &str) -> (Config, &Path) {
        (cluster_config(&self.store, self.folder.path(), name), self.folder.path())
    }

    /// Returns the lines of a node's audit log: the action, and the epoch in which the node led.
    pub(crate) fn audited(&self, name: &str) -> Vec<(String, Option<u64>)> {
        let path = self.folder.path().join(name).join("audit.jsonl");
        let text = fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["node"], name, "{line}");
            (line["action"].as_str().unwrap().to_owned(), line["epoch"].as_u64())
        };
        text.lines().map(line).collect()
    }

    /// Starts a node and waits until it leads.
    pub(crate) async fn start_leader(&self, name: &str) -> Node {
        let node = self.start(name).await;
        node.until(NodeStanding::Leading).await;
        node
    }

    /// Starts a node and waits until it knows the leader.
    pub(crate) async fn start_follower(&self, name: &str) -> Node {
        let node = self.start(name).await;
        node.until_view(|view| view.leader.is_some()).await;
        assert_eq!(node.view().await.standing, NodeStanding::Following);
        node
    }
}

impl Deref for Node {
    type Target = Requests;

    fn deref(&self) -> &Requests {
        &self.requests
    }
}

impl Node {
    /// Ends the node with the effect of a crash.
    pub(crate) fn crash(self) {
        drop(self.server);
    }
}

impl Requests {
    pub(crate) fn to(grpc: SocketAddr, admin: SocketAddr) -> Self {
        // A node in this process installs it as well; an error says that it is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { grpc, admin, http }
    }

    /// Asks the admin API.
    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let url = format!("http://{}{path}", self.admin);
        let answer = self.http.get(url).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Asks as a node that takes this one for the leader does.
    pub(crate) async fn get_passed_on(&self, path: &str) -> (StatusCode, String) {
        let url = format!("http://{}{path}", self.admin);
        let answer = self.http.get(url).header("handfast-passed-on", "1").send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str) -> (StatusCode, String) {
        let url = format!("http://{}{path}", self.admin);
        let json = ("content-type", "application/json");
        let answer = self.http.post(url).header(json.0, json.1).body("{}").send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    pub(crate) async fn view(&self) -> ClusterView {
        let (status, body) = self.get("/api/v1/cluster").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn until(&self, standing: NodeStanding) {
        self.until_view(|view| view.standing == standing).await;
    }

    pub(crate) async fn until_view(&self, wanted: impl Fn(&ClusterView) -> bool) {
        let reached = async {
            while !wanted(&self.view().await) {
                sleep(ASK_EVERY).await;
            }
        };
        if timeout(LIMIT, reached).await.is_err() {
            panic!("the node stays {:?}", self.view().await);
        }
    }

    pub(crate) async fn client(&self) -> CoordinatorClient<Channel> {
        let endpoint = format!("http://{}", self.grpc);
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        CoordinatorClient::new(channel)
    }

    /// Begins a global by a unary call.
    pub(crate) async fn begin(&self) -> String {
        self.client().await.begin(begin()).await.unwrap().into_inner().xid
    }

    /// Registers a branch that locks a row.
    pub(crate) async fn register(&self, xid: &str, branch_id: u64) -> Result<u64, Status> {
        let request = registration(xid, branch_id);
        let reply = self.client().await.register_branch(request).await?;
        Ok(reply.into_inner().fencing_token)
    }

    /// Commits a global, and returns its status.
    pub(crate) async fn commit(&self, xid: &str) -> Result<GlobalStatus, Status> {
        let reply: EndReply = self.client().await.end(commit(xid)).await?.into_inner();
        Ok(reply.status())
    }
}

pub(crate) fn begin() -> BeginRequest {
    BeginRequest {
        application: "orders".to_owned(),
        name: "place-order".to_owned(),
        timeout_ms: 600_000,
        ..BeginRequest::default()
    }
}

/// Returns the registration of a branch that locks a row of its own.
pub(crate) fn registration(xid: &str, branch_id: u64) -> RegisterBranchRequest {
    let keys = vec![format!("1:{branch_id}").into_bytes()];
    let (table, mode) = ("orders".to_owned(), LockMode::Exclusive.into());
    let rows = RowKeys { table, mode, keys, ..RowKeys::default() };
    RegisterBranchRequest {
        xid: xid.to_owned(),
        branch_id,
        resource_id: "sqlite:orders".to_owned(),
        mode: handfast_proto::v1::Mode::At.into(),
        rows: vec![rows],
        ..RegisterBranchRequest::default()
    }
}

pub(crate) fn commit(xid: &str) -> EndRequest {
    EndRequest { xid: xid.to_owned(), decision: Decision::Commit.into(), ..EndRequest::default() }
}
