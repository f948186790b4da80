//! Parked events over a coordinator: real programs, a real broker that refuses, and an outbox.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::Ipv4Addr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use handfast::outbox::{self, Event};
use handfast_test_services::{CoordinatorProcess, free_address, without_configuration};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_handfast");
const PATIENCE: Duration = Duration::from_secs(60);

/// A relay that ends with the test.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Stage {
    _coordinator: CoordinatorProcess,
    _relay: Relay,
    admin: String,
    pool: SqlitePool,
    topic: String,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// Opens an outbox whose broker refuses a topic, since the name of its stream is that of
    /// something else.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("outbox.db");
        let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        outbox::migrate(&pool).await.unwrap();
        let [grpc, admin] = [(); 2].map(|()| free_address(Ipv4Addr::LOCALHOST.into()).unwrap());
        let mut serve = Command::new(PROGRAM);
        without_configuration(&mut serve);
        serve.args(["serve", "--data-dir"]).arg(folder.path().join("coordinator"));
        let mut coordinator = CoordinatorProcess::start(serve, [grpc, admin], None).unwrap();
        coordinator.wait_until_ready().unwrap();
        let topic = format!("test-{}", Event::unordered("any").id());
        redis(&["SET", &format!("handfast:events:{topic}"), "no stream"]).await;
        let mut relay = Command::new(PROGRAM);
        without_configuration(&mut relay);
        let (url, broker) = (format!("sqlite://{}", file.display()), broker());
        relay.args(["relay", "--attempts-max", "1", "--report-as", "orders"]);
        relay.args(["--database", &url, "--broker", &broker]);
        relay.env("HANDFAST_ENDPOINTS", format!("http://{grpc}"));
        let relay = relay.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (admin, relay) = (format!("http://{admin}"), Relay(relay));
        Self { _coordinator: coordinator, _relay: relay, admin, pool, topic, _folder: folder }
    }

    async fn emit(&self, key: &str, payload: &str) -> String {
        let event = Event::new(&self.topic, key).payload(payload);
        let mut local = self.pool.begin().await.unwrap();
        outbox::emit(&mut local, &event).await.unwrap();
        local.commit().await.unwrap();
        event.id().to_string()
    }

    fn events(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(PROGRAM);
        without_configuration(&mut program);
        program.arg("events").args(arguments).args(["--server", &self.admin]);
        program.output().unwrap()
    }

    fn listed(&self) -> Value {
        let output = self.events(&["ls", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let listed = self.listed();
            if is_so(&listed) {
                return listed;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {listed:#}");
        }
    }
}

fn broker() -> String {
    std::env::var("HANDFAST_TEST_REDIS")
        .expect("HANDFAST_TEST_REDIS is not set: run the tests with `cargo xtask test`")
}

async fn redis(command: &[&str]) {
    let client = redis::Client::open(broker()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (name, arguments) = command.split_first().unwrap();
    let done: redis::Value =
        redis::cmd(name).arg(arguments).query_async(&mut connection).await.unwrap();
    drop(done);
}

#[tokio::test]
async fn a_parked_event_is_seen_requeued_and_skipped() {
    let stage = Stage::new().await;
    let first = stage.emit("order-7", "placed").await;
    let listed = stage.until("it is parked", |listed| listed["items"][0]["event"] == first);
    let parked = &listed["items"][0];
    assert_eq!((&parked["outbox"], &parked["key"]), (&"orders".into(), &"order-7".into()));
    assert_eq!(parked["application"], "handfast-relay");
    assert!(parked["reason"].as_str().unwrap().contains("WRONGTYPE"), "{parked}");
    let shown = String::from_utf8(stage.events(&["ls"]).stdout).unwrap();
    for word in [&*first, "OUTBOX", "orders", "order-7", "WRONGTYPE", "reports"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }

    // The cause is put right, and the event is published after all.
    redis(&["DEL", &format!("handfast:events:{}", stage.topic)]).await;
    let requeued = stage.events(&["requeue", &first, "--reason", "the stream is free"]);
    assert!(requeued.status.success(), "{requeued:?}");
    let said = String::from_utf8(requeued.stdout).unwrap();
    assert_eq!(said, format!("{first} of orders is to be published again\n"));
    stage.until("nothing is parked or new", |listed| {
        listed["relays"][0]["parked"] == 0 && listed["relays"][0]["new"] == 0
    });

    let unknown = stage.events(&["skip", &first]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("HF-ADM-UNKNOWN-EVENT"), "{said}");
    assert_eq!(unknown.status.code(), Some(3), "{said}");

    redis(&["DEL", &format!("handfast:events:{}", stage.topic)]).await;
    redis(&["SET", &format!("handfast:events:{}", stage.topic), "no stream"]).await;
    let second = stage.emit("order-8", "placed").await;
    stage.until("it is parked", |listed| listed["items"][0]["event"] == second);
    let skipped = stage.events(&["skip", &second, "--json"]);
    let reply: Value = serde_json::from_slice(&skipped.stdout).unwrap();
    assert_eq!(reply["state"], "skipped");
    stage.until("nothing is parked", |listed| listed["items"] == Value::from(Vec::<u8>::new()));
    redis(&["DEL", &format!("handfast:events:{}", stage.topic)]).await;
}
