//! The commands of an outbox, on a SQLite outbox and real brokers.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use handfast::outbox::{self, Event, RabbitMq};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_handfast");

struct Outbox {
    _directory: tempfile::TempDir,
    pool: SqlitePool,
    url: String,
}

impl Outbox {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("outbox.db");
        let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        outbox::migrate(&pool).await.unwrap();
        Self { pool, url: format!("sqlite://{}", file.display()), _directory: directory }
    }

    async fn emit(&self, event: &Event) {
        let mut local = self.pool.begin().await.unwrap();
        outbox::emit(&mut local, event).await.unwrap();
        local.commit().await.unwrap();
    }

    fn call(&self, command: &str, more: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(["outbox", command, "--database", &self.url]).args(more);
        program.output().unwrap()
    }

    fn json(&self, command: &str) -> serde_json::Value {
        let output = self.call(command, &["--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[tokio::test]
async fn events_are_listed_requeued_and_skipped() {
    let outbox = Outbox::new().await;
    let event = Event::new("orders", "7").payload("placed");
    outbox.emit(&event).await;
    let id = event.id().to_string();
    let refused = outbox.call("skip", &[&id]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("is not parked") && said.contains("HF-CLI-OUTBOX"), "{said}");

    let park = "UPDATE event_outbox SET status = 4, attempts = 10, last_error = 'too long'";
    sqlx::query(park).execute(&outbox.pool).await.unwrap();
    let listed = outbox.json("ls");
    assert_eq!(listed[0]["event"], id);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["last_error"]),
        (&"parked".into(), &"too long".into())
    );
    let shown = String::from_utf8(outbox.call("ls", &["--state", "parked"]).stdout).unwrap();
    assert!(shown.contains(&id) && shown.contains("too long"), "{shown}");
    assert_eq!(outbox.json("lag")["parked"], 1);

    assert!(outbox.call("requeue", &[&id]).status.success());
    assert_eq!(outbox.json("lag")["new"], 1);
    sqlx::query(park).execute(&outbox.pool).await.unwrap();
    assert!(outbox.call("skip", &[&id]).status.success());
    assert_eq!(outbox.json("ls")[0]["state"], "skipped");
}

#[tokio::test]
async fn events_are_relayed_to_redis_until_a_signal() {
    check_relay_until_signal(&server("HANDFAST_TEST_REDIS"), &fresh_topic()).await;
}

#[tokio::test]
async fn events_are_relayed_to_nats_until_a_signal() {
    check_relay_until_signal(&server("HANDFAST_TEST_NATS"), &fresh_topic()).await;
}

#[tokio::test]
async fn events_are_relayed_to_rabbit_mq_until_a_signal() {
    let (url, topic) = (server("HANDFAST_TEST_RABBITMQ"), fresh_topic());
    let rabbit = RabbitMq::connect(&url).await.unwrap();
    let _group = rabbit.subscribe(&topic, "payments").await.unwrap();
    check_relay_until_signal(&url, &topic).await;
}

fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `cargo xtask test`"))
}

fn fresh_topic() -> String {
    format!("test-{}", Event::unordered("any").id())
}

async fn check_relay_until_signal(broker: &str, topic: &str) {
    let outbox = Outbox::new().await;
    outbox.emit(&Event::new(topic, "7").payload("placed")).await;
    let mut program = Command::new(PROGRAM);
    program.args(["relay", "--database", &outbox.url, "--broker", broker]);
    let metrics = free_address();
    program.args(["--metrics", &metrics]);
    let mut relay = program.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while outbox.json("ls")[0]["state"] != "published" {
        assert!(began.elapsed() < Duration::from_secs(60), "the event is published in time");
        assert!(relay.try_wait().unwrap().is_none(), "the relay runs");
    }
    assert_eq!(outbox.json("lag")["relays"], 1);
    let scraped = scrape(&metrics);
    for line in ["200 OK", "handfast_outbox_relays 1", "handfast_outbox_events{state=\"new\"} 0"] {
        assert!(scraped.contains(line), "{line}: {scraped}");
    }
    let pid = relay.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(relay.wait().unwrap().success());
    assert_eq!(outbox.json("lag")["relays"], 0, "the relay has released its lanes");
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
