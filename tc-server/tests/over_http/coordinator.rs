//! `handfast serve` on one data directory, through as many lives as it takes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{BeginRequest, Decision, EndRequest, TryBranchReply, TryBranchRequest};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub(crate) const SECRET: &str = "known to coordinator and service";

/// A data directory and a configuration; the process that runs on them, if one does.
#[derive(Clone)]
pub(crate) struct Coordinator {
    directory: Arc<tempfile::TempDir>,
    running: Arc<Mutex<Option<Child>>>,
}

impl Coordinator {
    /// May call under this prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("points.key");
        std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
        let config = format!(
            "data_dir = {:?}\n\
             [dispatch]\nretry_delay_ms_min = 1\nretry_delay_ms_max = 10\n\
             [[http.participants]]\nprefix = {prefix:?}\nsecret_file = {secret:?}\n",
            directory.path().join("data"),
        );
        std::fs::write(directory.path().join("handfast.toml"), config).unwrap();
        Self { directory: Arc::new(directory), running: Arc::default() }
    }

    /// A life of the process, and a client of it.
    pub(crate) async fn start(&self) -> Application {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handfast"))
            .args(["serve", "--grpc-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--log-format", "json", "--config"])
            .arg(self.directory.path().join("handfast.toml"))
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        *self.running.lock().unwrap() = Some(child);
        let mut told = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it did not start: {told}");
            assert!(!line.contains(SECRET), "the secret is logged: {line}");
            told.push_str(&line);
            let event: serde_json::Value = serde_json::from_str(&line).unwrap();
            if event["message"] == "listening" {
                break event["grpc_address"].as_str().unwrap().parse::<SocketAddr>().unwrap();
            }
        };
        // Whoever does not read a pipe stops who writes to it.
        std::thread::spawn(move || log.lines().for_each(drop));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Application { client: CoordinatorClient::new(endpoint.connect().await.unwrap()) }
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.running.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if Arc::strong_count(&self.running) == 1 {
            self.kill();
        }
    }
}

/// A TM, by unary calls.
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
        let request = TryBranchRequest {
            xid: xid.to_owned(),
            branch_id: 7,
            resource_id: url.to_owned(),
            input: b"30".to_vec(),
            timeout_ms: 60_000,
        };
        self.client.try_branch(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn end(&mut self, xid: &str, decision: Decision) -> Result<(), Status> {
        let request =
            EndRequest { xid: xid.to_owned(), decision: decision.into(), ..EndRequest::default() };
        self.client.end(request).await.map(drop)
    }
}
