//! Garbage on every port, as fast as possible: all of it is counted, and little is logged.

use std::net::SocketAddr;

use futures::future::join_all;
use handfast_proto::v1::BeginRequest;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_test_services::SignedCertificate;

use crate::faults::answer_to;
use crate::port::{Admin, TokensFile};
use crate::serving::Coordinator;

const TIMES: usize = 2_000;
/// Far above the lines of a slow test of minutes at one line per interval, and far below `TIMES`.
const LINES_MAX: usize = 200;
/// How many clients of other tests may come by.
const STRANGERS_MAX: usize = 100;

async fn many_times(address: SocketAddr, bytes: &[u8]) {
    for _ in 0..TIMES / 50 {
        join_all((0..50).map(|_| answer_to(address, bytes))).await;
    }
}

/// Returns the count of a kind.
fn counted(metrics: &str, port: &str, reason: &str) -> usize {
    let name = format!("handfast_turned_away_total{{port=\"{port}\",reason=\"{reason}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn lines_of(log: &str, port: &str) -> usize {
    let of = format!("\"port\":\"{port}\"");
    log.lines().filter(|line| line.contains("turned away") && line.contains(&of)).count()
}

/// Regression: each case was one line, and a client without a token filled the disk.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_counted_and_rarely_logged() {
    let seata = ["--set", "seata.enabled=true", "--set", "seata.listen=127.0.0.1:0"];
    let arguments = [&["--store", "memory"], &seata[..]].concat();
    let coordinator = Coordinator::start(&arguments);
    let (grpc, admin) = (coordinator.grpc, coordinator.admin);
    let seata = coordinator.seata.unwrap();
    many_times(grpc, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and then more of it").await;
    many_times(admin, b"\x16\x03\x01\x02\x00\x01\r\n\r\n").await;
    many_times(seata, b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await;

    let admin = Admin::new(&format!("http://{admin}"), None);
    let metrics = admin.send(http::Method::GET, "/metrics", None).await.1;
    drop(admin);
    let log = coordinator.stop();
    assert!(log.lines().count() < 3 * LINES_MAX, "{} lines", log.lines().count());
    for port in ["grpc", "admin", "seata"] {
        assert!((1..LINES_MAX).contains(&lines_of(&log, port)), "{port}: {log}");
        assert_eq!(counted(&metrics, port, "malformed"), TIMES, "{port}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_tokens_and_handshakes_are_rarely_logged() {
    let (signed, tokens) = (SignedCertificate::make(), TokensFile::draw());
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| signed.path(name));
    let set = |key: &str, path: &std::path::Path| format!("{key}={}", path.display());
    let tls = [set("tls.certificate", &certificate), set("tls.private_key", &key)];
    let encrypted = Coordinator::start(&["--store", "memory", "--set", &tls[0], "--set", &tls[1]]);
    let address = encrypted.grpc;
    many_times(address, b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await;
    assert!((1..LINES_MAX).contains(&lines_of(&encrypted.stop(), "grpc")));

    let path = tokens.path();
    let path = path.to_str().unwrap();
    let coordinator = Coordinator::start(&["--store", "memory", "--tokens", path]);
    let base = format!("http://{}", coordinator.admin);
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", coordinator.grpc));
    let mut client = CoordinatorClient::new(channel.unwrap().connect().await.unwrap());
    let stranger = Admin::new(&base, Some("hft_stranger".to_owned()));
    for _ in 0..TIMES {
        assert!(client.begin(BeginRequest::default()).await.is_err());
        assert_eq!(stranger.send(http::Method::GET, "/metrics", None).await.0, 401);
    }
    let viewer = Admin::new(&base, Some(tokens.viewer.clone()));
    let metrics = viewer.send(http::Method::GET, "/metrics", None).await.1;
    drop((client, stranger, viewer));
    let log = coordinator.stop();
    for port in ["grpc", "admin"] {
        // A client of another test may look here for a coordinator that had the port before.
        let turned_away = counted(&metrics, port, "token");
        assert!((TIMES..TIMES + STRANGERS_MAX).contains(&turned_away), "{port}: {turned_away}");
        assert!((1..LINES_MAX).contains(&lines_of(&log, port)), "{port}: {log}");
    }
    assert!(!log.contains("hft_"), "{log}");
}
