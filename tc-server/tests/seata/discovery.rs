//! Discovery by a client whose registry is `raft`, over the admin port.

use handfast_server::config::Config;
use handfast_server::security::{NewToken, Role};
use handfast_server::serve::{RunningServer, Server, ShutdownOutcome};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::start;

fn http() -> Client {
    // Fails only if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

fn url(server: &RunningServer, path: &str) -> String {
    format!("http://{}{path}", server.admin_address)
}

async fn watch(server: &RunningServer, form: String, timeout_ms: u64) -> StatusCode {
    let url = url(server, &format!("/metadata/v1/watch?timeout={timeout_ms}"));
    let form_type = "application/x-www-form-urlencoded";
    let request = http().post(url).header("content-type", form_type).body(form);
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn a_client_discovers_the_coordinator() {
    let server = start().await;
    let answer = http().get(url(&server, "/metadata/v1/cluster?group=")).send().await.unwrap();
    let mut metadata: Value = answer.json().await.unwrap();
    let term = metadata["term"].take();
    assert!(term.as_u64().unwrap() > 0);
    let control = json!({"host": "127.0.0.1", "port": server.admin_address.port()});
    let port = server.seata_address.unwrap().port();
    let expected = json!({
        "nodes": [{
            "control": control,
            "transaction": {"host": "127.0.0.1", "port": port},
            "internal": control,
            "group": "default",
            "role": "LEADER",
            "version": "2.5.0",
            "metadata": {},
        }],
        "storeMode": "raft",
        "term": null,
    });
    assert_eq!(metadata, expected);
}

#[tokio::test]
async fn a_watch_ends_at_once_for_an_older_term() {
    let server = start().await;
    let answer = http().get(url(&server, "/metadata/v1/cluster")).send().await.unwrap();
    let metadata: Value = answer.json().await.unwrap();
    let term = metadata["term"].as_u64().unwrap();
    assert_eq!(watch(&server, "default=-1".to_owned(), 60_000).await, StatusCode::OK);
    assert_eq!(watch(&server, format!("default={}", term - 1), 60_000).await, StatusCode::OK);
    assert_eq!(watch(&server, format!("default={term}"), 1).await, StatusCode::NOT_MODIFIED);
    assert_eq!(watch(&server, "default".to_owned(), 1).await, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_watch_does_not_delay_the_shutdown() {
    let mut config = Config::tiny();
    config.seata.enabled = true;
    config.admin.request_timeout_ms = 3_600_000;
    config.shutdown_limit_ms = 60_000;
    let server = Server::start(config).await.unwrap();
    let mut io = TcpStream::connect(server.admin_address).await.unwrap();
    let head = "POST /metadata/v1/watch?timeout=3600000 HTTP/1.1\r\nHost: tc\r\n\
                Content-Length: 14\r\nExpect: 100-continue\r\n\r\n";
    io.write_all(head.as_bytes()).await.unwrap();
    // The server handles the request from the moment at which it reads the body.
    let mut answer = [0; 25];
    io.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"HTTP/1.1 100 Continue\r\n\r\n");
    io.write_all(b"default=999999").await.unwrap();
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 304"), "{answer}");
}

#[tokio::test]
async fn a_password_that_is_a_token_opens_a_guarded_port() {
    let directory = tempfile::tempdir().unwrap();
    let (path, token) =
        (directory.path().join("tokens"), NewToken::draw("seata", Role::Viewer).unwrap());
    std::fs::write(&path, &token.line).unwrap();
    let mut config = Config::tiny();
    config.seata.enabled = true;
    config.security.tokens = Some(path);
    let server = Server::start(config).await.unwrap();
    let cluster = url(&server, "/metadata/v1/cluster");
    let unknown = http().get(&cluster).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);

    let login = async |password: &str| {
        let body = json!({"username": "seata", "password": password});
        let answer = http().post(url(&server, "/api/v1/auth/login")).json(&body).send();
        answer.await.unwrap().json::<Value>().await.unwrap()
    };
    let refused = login("seata").await;
    assert_eq!((&refused["code"], &refused["success"]), (&json!("401"), &json!(false)));
    let opened = login(&token.token).await;
    assert_eq!((&opened["code"], &opened["success"]), (&json!("200"), &json!(true)));
    let bearer = opened["data"].as_str().unwrap();
    let known = http().get(&cluster).header("authorization", bearer).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::OK);
}

#[tokio::test]
async fn without_a_seata_port_nothing_is_discovered() {
    let server = Server::start(Config::tiny()).await.unwrap();
    for path in ["/metadata/v1/cluster", "/metadata/v1/watch", "/api/v1/auth/login"] {
        let client = http();
        let request = match path {
            "/metadata/v1/cluster" => client.get(url(&server, path)),
            "/metadata/v1/watch" => client.post(url(&server, path)).body("default=1"),
            _ => client.post(url(&server, path)).json(&json!({"password": "x"})),
        };
        assert_eq!(request.send().await.unwrap().status(), StatusCode::NOT_FOUND, "{path}");
    }
}
