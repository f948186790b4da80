//! Faults of operation: a full disk, malformed bytes, silent clients, an unreachable coordinator.

use std::net::SocketAddr;

use handfast_server::admin::model::ServerStatus;
use handfast_server::serve::Server;
use handfast_test_services::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tonic::Code;

use crate::application::{Application, registration};
use crate::port::{Admin, roomy, start, start_with};
use crate::serving::{Coordinator, handfast};

/// A transaction whose registration was acknowledged must not be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let arguments = ["--data-dir", data_dir.to_str().unwrap()];
    // The store preallocates more than the limit when it creates its files.
    let coordinator = Coordinator::start(&arguments);
    coordinator.signal("-TERM");
    assert_eq!(coordinator.wait().0, Some(0));

    // In blocks of 512 bytes: above the size of the records' file, and far below the journal's.
    let coordinator = Coordinator::start_on_small_disk(&arguments, 2_400);
    let mut application = Application::connect(coordinator.grpc).await;
    let mut acknowledged = Vec::new();
    // A write that no request waits for may be the first to fail, and then a begin is refused.
    let refusal = loop {
        let xid = match application.try_begin("place-order").await {
            Ok(xid) => xid,
            Err(status) => break status,
        };
        let key = format!("{}", acknowledged.len());
        match application.register(&xid, 7, &format!("{}:{key}", key.len())).await {
            Ok(()) => acknowledged.push(xid),
            Err(status) => break status,
        }
    };
    assert!(!acknowledged.is_empty());
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    assert_eq!(refusal.metadata().get("handfast-code").unwrap(), "HF-TC-NOT-LEADING");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(8), "{log}");
    assert!(log.contains("error[HF-TC-STORE-WRITE]: the store failed: writing to"), "{log}");

    let coordinator = Coordinator::start(&arguments);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    for xid in &acknowledged {
        assert_eq!(admin.show(xid).await.branches.len(), 1, "{xid}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_registration_is_answered_at_a_stop() {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let mut application = Application::connect(coordinator.grpc).await;
    let holder = application.begin("place-order").await;
    application.register(&holder, 7, "2:42").await.unwrap();
    let waiter = application.begin("place-order").await;
    let mut client = application.client.clone();
    let waiting = tokio::spawn(async move {
        client.register_branch(registration(&waiter, 8, "2:42", 60_000)).await
    });
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    let waiting_now = async || admin.get::<ServerStatus>("/api/v1/status").await.waiters;
    until("it waits", async || waiting_now().await > 0).await;
    drop(admin);
    coordinator.signal("-TERM");
    let refusal = waiting.await.unwrap().unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    assert_eq!(refusal.metadata().get("handfast-code").unwrap(), "HF-TC-STOPPING");
    drop(application);
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

/// Waits until a request is answered.
pub(crate) async fn until_live(address: SocketAddr) {
    let probe = b"GET /livez HTTP/1.0\r\n\r\n";
    until("there is room", async || !answer_to(address, probe).await.is_empty()).await;
}

/// Sends bytes and reads until the server closes the connection.
pub(crate) async fn answer_to(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bytes_end_only_their_own_connection() {
    let (server, admin, mut application) = start().await;
    let garbage = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n and more\r\n\r\n";
    let answer = answer_to(server.admin_address, garbage).await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let endless = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let answer = answer_to(server.admin_address, endless.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    answer_to(server.grpc_address, garbage).await;
    answer_to(server.grpc_address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a settings frame").await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    assert_eq!(admin.show(&xid).await.branches.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_is_disconnected() {
    let mut config = roomy();
    config.admin.silence_timeout_ms = 50;
    config.grpc.silence_timeout_ms = 50;
    let server = Server::start(config).await.unwrap();
    answer_to(server.grpc_address, b"").await;
    answer_to(server.grpc_address, b"PRI * HTTP/2.0\r\n").await;
    answer_to(server.admin_address, b"").await;
    answer_to(server.admin_address, b"GET /livez HTTP/1.1\r\nhost: here\r\n").await;
    // On a busy machine a request too may come after the limit.
    let request = b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n";
    let is_answered =
        async || answer_to(server.admin_address, request).await.ends_with("\r\n\r\nok\n");
    until("it was kept alive, then disconnected", is_answered).await;
}

// Lost were the connections of all other clients, probes included.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_answer_is_disconnected() {
    let mut config = roomy();
    config.admin.connections_max = 1;
    config.admin.silence_timeout_ms = 200;
    let server = Server::start(config).await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut unread = socket.connect(server.admin_address).await.unwrap();
    // Their answers are larger than the socket's buffers.
    let ask = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
    unread.write_all(&ask).await.unwrap();
    until_live(server.admin_address).await;
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excess_connection_is_closed_until_there_is_room() {
    let mut config = roomy();
    config.admin.connections_max = 1;
    config.grpc.connections_max = 1;
    let (server, admin, _application) = start_with(config).await;
    assert_eq!(answer_to(server.grpc_address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "");
    let live = async || admin.http.get(format!("{}/livez", admin.base)).send().await;
    assert!(live().await.unwrap().status().is_success());
    assert_eq!(answer_to(server.admin_address, b"GET /livez HTTP/1.1\r\n\r\n").await, "");
    drop(admin);
    until_live(server.admin_address).await;
}

#[test]
fn an_unreachable_coordinator_has_its_own_exit_code() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = format!("http://{unused}");
    for command in ["status", "tx ls", "tx show 7", "tx commit 7", "lock ls", "processes"] {
        let mut asked = handfast(&command.split(' ').collect::<Vec<_>>());
        let output = asked.args(["--server", &server]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{command}: {said}");
        assert!(said.contains("error[HF-CLI-UNREACHABLE]"), "{command}: {said}");
        assert!(said.contains(&server) && output.stdout.is_empty(), "{command}: {said}");
    }
}
