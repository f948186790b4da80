//! `handfast serve` as a process: its start, its end, and its exit codes.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{ClientFrame, ClientMessage, Hello, client_message, server_message};
use handfast_server::config::StoreKind;
use handfast_server::serve::ShutdownOutcome;
use handfast_test_services::{CoordinatorProcess, Signal, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::application::Application;
use crate::port::{Admin, TokensFile, roomy, start_with};

/// A coordinator in a process of its own, which is killed with the test.
pub(crate) struct Coordinator {
    process: CoordinatorProcess,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) seata: Option<SocketAddr>,
}

/// Returns the command `handfast` with these arguments, without an environment.
pub(crate) fn handfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-server"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

impl Coordinator {
    /// Starts `handfast serve` on free ports, which are read from its log.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(handfast(&[&["serve"], arguments].concat()))
    }

    /// As [`Self::start`], where no file can grow past so many blocks of 512 bytes: a full disk.
    pub(crate) fn start_on_small_disk(arguments: &[&str], blocks: u32) -> Self {
        Self::start_limited(&format!("trap '' XFSZ; ulimit -f {blocks}"), arguments)
    }

    /// As [`Self::start`], behind a command of the shell that sets limits.
    pub(crate) fn start_limited(limit: &str, arguments: &[&str]) -> Self {
        let mut limited = Command::new("sh");
        let run = format!("{limit}; exec \"$@\"");
        limited.args(["-c", &run, "sh", env!("CARGO_BIN_EXE_handfast-server"), "serve"]);
        limited.args(arguments).env_clear();
        Self::spawn(limited)
    }

    /// As [`Self::start`], with a disk that hangs at the first batch.
    #[cfg(feature = "crash-points")]
    pub(crate) fn start_on_hanging_disk(arguments: &[&str]) -> Self {
        let mut command = handfast(&[&["serve"], arguments].concat());
        command.env("TC_HANG_POINT", "before-write");
        Self::spawn(command)
    }

    fn spawn(command: Command) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let process = CoordinatorProcess::start(command, [free; 2], None).unwrap();
        let (grpc, admin, seata) = (process.grpc(), process.admin(), process.seata());
        Self { process, grpc, admin, seata }
    }

    /// Returns the event of the start whose message begins with `message`.
    pub(crate) fn startup_event(&self, message: &str) -> &serde_json::Value {
        self.process.startup_event(message).expect("the start logs the event")
    }

    /// Sets the soft limit of its file descriptors while it runs.
    pub(crate) fn set_descriptors_max(&self, soft: u32) {
        let (pid, limit) = (self.process.id().to_string(), format!("--nofile={soft}:"));
        let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
        assert!(set.unwrap().success());
    }

    /// Waits until a line after those already waited for contains this text.
    pub(crate) fn read_until(&mut self, text: &str) {
        self.process.wait_for_log(text).unwrap();
    }

    /// Sends a signal, named as for `kill`: `-TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        let signal: Signal = signal.replacen('-', "SIG", 1).parse().unwrap();
        self.process.signal(signal).unwrap();
    }

    /// Waits for the end. Returns the exit code and what was logged after the start.
    pub(crate) fn wait(self) -> (Option<i32>, String) {
        let (status, log) = self.process.wait().unwrap();
        (status.code(), log)
    }

    /// Stops it in order and returns what was logged after the start.
    pub(crate) fn stop(self) -> String {
        self.signal("-TERM");
        let (code, log) = self.wait();
        assert_eq!(code, Some(0), "{log}");
        log
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_and_exits_clean() {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let mut application = Application::connect(coordinator.grpc).await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains(r#""message":"shut down""#), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_is_told_to_go_away() {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let endpoint = format!("http://{}", coordinator.grpc);
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = CoordinatorClient::new(channel.connect().await.unwrap());
    let hello =
        client_message::Body::Hello(Hello { client_id: "client-1".to_owned(), ..Hello::default() });
    let first = ClientFrame { messages: vec![ClientMessage { id: 1, body: Some(hello) }] };
    // The client's side stays open: the server has to end the stream.
    let (frames, sent) = tokio::sync::mpsc::channel(1);
    frames.send(first).await.unwrap();
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut received = client.connect(sent).await.unwrap().into_inner();
    received.message().await.unwrap().unwrap();
    coordinator.signal("-INT");
    let mut told = false;
    while let Ok(Some(frame)) = received.message().await {
        told |= frame
            .messages
            .iter()
            .any(|message| matches!(message.body, Some(server_message::Body::GoAway(_))));
    }
    assert!(told, "the stream ended without a word");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_survive_a_restart_of_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let arguments = ["--data-dir", data_dir.to_str().unwrap()];
    let coordinator = Coordinator::start(&arguments);
    let mut application = Application::connect(coordinator.grpc).await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    coordinator.signal("-KILL");
    coordinator.wait();

    let coordinator = Coordinator::start(&arguments);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let detail = admin.show(&xid).await;
    assert_eq!(detail.transaction.xid, xid);
    assert_eq!(detail.branches[0].rows.len(), 1);
    // A second one must not lead beside the first.
    let second = handfast(&["serve", "--grpc-listen", "127.0.0.1:0"])
        .args(["--admin-listen", "127.0.0.1:0"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(8), "{said}");
    assert!(said.contains("error[HF-TC-DATA-DIR-LOCKED]"), "{said}");
    assert!(data_dir.join("audit.jsonl").is_file());
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output =
        handfast(&["serve", "--store", "memory", "--grpc-listen", &address]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("error[HF-CFG-LISTEN]"), "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn a_wrong_configuration_ends_before_anything_starts() {
    let output = handfast(&["serve", "--store", "tape"]).env("HANDFAST_ODD", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("error[HF-CFG-INVALID]: the configuration has 2 problem(s)"), "{said}");
    assert!(said.contains("HANDFAST_ODD") && said.contains("--store"), "{said}");
}

/// A client that has begun to speak and says nothing more: it does not let go when told to.
async fn mute_client(address: SocketAddr) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&empty_settings).await.unwrap();
    // The server's settings: from here on it counts this connection as one to drain.
    stream.read_exact(&mut [0; 9]).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_let_go_is_cut_off_at_the_limit() {
    let coordinator = Coordinator::start(&["--store", "memory", "--set", "shutdown_limit_ms=200"]);
    let mute = mute_client(coordinator.grpc).await;
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(9), "{log}");
    assert!(log.contains("error[HF-CLI-CUT-SHORT]"), "{log}");
    drop(mute);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_drains_it_is_alive_and_not_ready() {
    let arguments = ["--store", "memory", "--set", "shutdown_limit_ms=60000"];
    let coordinator = Coordinator::start(&arguments);
    let mute = mute_client(coordinator.grpc).await;
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let status = async |path| admin.send(http::Method::GET, path, None).await.0.as_u16();
    assert_eq!(status("/readyz").await, 200);
    coordinator.signal("-TERM");
    until("it is not ready", async || status("/readyz").await != 200).await;
    assert_eq!((status("/readyz").await, status("/livez").await), (503, 200));
    // The last client gone, the drain ends long before the limit.
    drop(mute);
    drop(admin);
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_drain() {
    let arguments = ["--store", "memory", "--set", "shutdown_limit_ms=60000"];
    let mut coordinator = Coordinator::start(&arguments);
    let mute = mute_client(coordinator.grpc).await;
    coordinator.signal("-TERM");
    coordinator.read_until("shutting down");
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(9), "{log}");
    drop(mute);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_restarts_inside_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = roomy();
    config.store = StoreKind::Embedded;
    config.data_dir = directory.path().join("data");
    config.advertised_address = Some("tc:7091".to_owned());
    let (server, _admin, mut application) = start_with(config.clone()).await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    drop(application);
    // Shut down, the data directory is free at once.
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    let (_server, admin, mut application) = start_with(config).await;
    assert_eq!(admin.show(&xid).await.transaction.xid, xid);
    assert!(xid.starts_with("tc:7091:"), "{xid}");
    assert_ne!(application.begin("place-order").await, xid);
}

// A reader of the log must not be able to act as an operator.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_never_logged() {
    let tokens = TokensFile::draw();
    let path = tokens.path();
    let arguments = ["--store", "memory", "--tokens", path.to_str().unwrap()];
    let arguments = [&arguments[..], &["--log-filter", "handfast_server=trace,info"]].concat();
    let coordinator = Coordinator::start(&arguments);
    let base = format!("http://{}", coordinator.admin);
    let admin = Admin::new(&base, Some(tokens.operator.clone()));
    let unknown = admin.problem(http::Method::POST, "/api/v1/transactions/1/retry", None).await;
    assert_eq!(unknown.1, "HF-TC-UNKNOWN-XID");
    let stranger = Admin::new(&base, Some("hft_stranger".to_owned()));
    assert_eq!(stranger.problem(http::Method::GET, "/metrics", None).await.0, 401);
    drop((admin, stranger));
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("operator action") && log.contains("alice"), "{log}");
    assert!(!log.contains("hft_"), "{log}");
}
