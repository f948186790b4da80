//! `handfast serve` on one data directory, killed and started again.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{BeginRequest, Decision, EndRequest, TryBranchReply, TryBranchRequest};
use handfast_test_services::CoordinatorProcess;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub(crate) const SECRET: &str = "known to coordinator and service";

/// A data directory and a configuration, and the process that runs on them. Clones share it.
#[derive(Clone)]
pub(crate) struct Coordinator {
    directory: Arc<tempfile::TempDir>,
    running: Arc<Mutex<Option<CoordinatorProcess>>>,
}

impl Coordinator {
    /// A coordinator that may call participants under this prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("points.key");
        std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
        let config = format!(
            "data_dir = {:?}\njournal_segment_bytes = 1048576\n\
             [dispatch]\nretry_delay_ms_min = 1\nretry_delay_ms_max = 10\n\
             [[http.participants]]\nprefix = {prefix:?}\nsecret_file = {secret:?}\n",
            directory.path().join("data"),
        );
        std::fs::write(directory.path().join("handfast.toml"), config).unwrap();
        Self { directory: Arc::new(directory), running: Arc::default() }
    }

    /// Starts the process and returns a client of it.
    pub(crate) async fn start(&self) -> Application {
        let (config, log) = (self.path("handfast.toml"), self.path("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-server"));
        command.arg("serve").arg("--config").arg(config).env_clear();
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let process = CoordinatorProcess::start(command, [free; 2], Some(&log)).unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains(SECRET), "the secret is logged: {log}");
        let endpoint = Endpoint::from_shared(format!("http://{}", process.grpc())).unwrap();
        *self.running.lock().unwrap() = Some(process);
        Application { client: CoordinatorClient::new(endpoint.connect().await.unwrap()) }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.running.lock().unwrap().take() {
            process.kill().unwrap();
        }
    }
}

/// A TM that sends unary calls.
#[derive(Clone)]
pub(crate) struct Application {
    client: CoordinatorClient<Channel>,
}

impl Application {
    pub(crate) async fn begin(&mut self) -> String {
        let request = BeginRequest { name: "buy".to_owned(), ..BeginRequest::default() };
        self.client.begin(request).await.unwrap().into_inner().xid
    }

    pub(crate) async fn try_(&mut self, xid: &str, url: &str) -> Result<TryBranchReply, Status> {
        self.try_within(xid, url, "").await
    }

    pub(crate) async fn try_within(
        &mut self,
        xid: &str,
        url: &str,
        traceparent: &str,
    ) -> Result<TryBranchReply, Status> {
        let request = TryBranchRequest {
            xid: xid.to_owned(),
            branch_id: 7,
            resource_id: url.to_owned(),
            input: b"30".to_vec(),
            timeout_ms: 60_000,
            traceparent: traceparent.to_owned(),
        };
        self.client.try_branch(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn end(&mut self, xid: &str, decision: Decision) -> Result<(), Status> {
        let request =
            EndRequest { xid: xid.to_owned(), decision: decision.into(), ..EndRequest::default() };
        self.client.end(request).await.map(drop)
    }
}
