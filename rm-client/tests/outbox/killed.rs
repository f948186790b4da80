//! Processes that die at the worst moments: a relay between publishing and marking, a consumer
//! between effect and acknowledgement, a branch that has emitted. No event is lost, and none takes
//! effect twice.
//!
//! The process is this test program, started as a child process with a role.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use handfast::outbox::{Consumer, EventState, Relay};
use handfast::{Global, Handfast, Xid};
use nix::sys::signal::Signal;
use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, MySql, Postgres, Sqlite};

use crate::at::on_every_database;
use crate::inbox::Effect;
use crate::scene::{PATIENCE, Scene, TOPIC, event, start, until};
use crate::streams::{connect, effect, fresh_prefix};

on_every_database!(
    a_relay_killed_before_publishing_loses_nothing,
    a_relay_killed_after_publishing_doubles_no_effect,
    a_consumer_killed_before_acknowledging_doubles_no_effect,
    a_branch_killed_after_commit_leaves_its_events_held,
    a_branch_killed_before_its_commit_leaves_no_event,
);

const PART: &str = "HANDFAST_TEST_PART";
const IDLE: Duration = Duration::from_millis(50);

/// The entry point of a child process. Without a role it returns at once.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let words: Vec<&str> = part.split(' ').collect();
    let [role, database, url, prefix] = words.as_slice() else { unreachable!("a part: {part}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match *database {
        "postgres" => runtime.block_on(play::<Postgres>(role, url, prefix)),
        "mysql" => runtime.block_on(play::<MySql>(role, url, prefix)),
        "sqlite" => runtime.block_on(play::<Sqlite>(role, url, prefix)),
        other => unreachable!("no database is called {other}"),
    }
}

async fn play<DB: Effect>(role: &str, url: &str, prefix: &str) {
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(url).await.unwrap();
    if role == "branch" {
        return branch(pool, prefix).await;
    }
    let broker = connect(prefix).await;
    if role == "relay" {
        let relay = Relay::new(pool, broker).lease(Duration::from_millis(1_000));
        relay.run(std::future::pending()).await.unwrap();
    } else {
        let events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
        let consumer = Consumer::new(pool, "payments");
        consumer.run(events, effect::<DB>, std::future::pending()).await.unwrap();
    }
}

/// Runs a branch with a change and an event. `place` names the global and its coordinator.
async fn branch<DB: Effect>(pool: sqlx::Pool<DB>, place: &str) {
    let (endpoint, xid) = place.split_once('|').unwrap();
    let handfast = Handfast::connect(endpoint).application("child").await.unwrap();
    let resource = handfast.at(pool).await.unwrap();
    let work = async {
        let mut local = resource.begin().await.unwrap();
        DB::run(&mut local, "UPDATE account SET cents = cents - 1 WHERE id = 1").await.unwrap();
        local.emit(&event("1", "held")).await.unwrap();
        local.commit().await.unwrap();
    };
    xid.parse::<Xid>().unwrap().scope(work).await;
}

/// Starts a child and waits until it dies at the crash point.
async fn crash<DB: Effect>(scene: &Scene<DB>, role: &str, prefix: &str, point: &str) {
    let url = scene.pool().connect_options().to_url_lossy();
    let part = format!("{role} {} {url} {prefix}", DB::NAME_IN_TESTS);
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::plays_its_part", "--nocapture"]).env(PART, part);
    command.env("HANDFAST_CRASH_POINT", point).kill_on_drop(true);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("the child ends");
    assert_eq!(ended.unwrap().signal(), Some(Signal::SIGABRT as i32), "{point} is reached");
}

async fn crash_branch<DB: Effect>(scene: &Scene<DB>, global: &Global, point: &str) {
    let place = format!("{}|{}", scene.stage.tc.endpoint(), global.xid());
    crash(scene, "branch", &place, point).await;
}

async fn a_branch_killed_after_commit_leaves_its_events_held<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let dropped = scene.stage.begin().await;
    crash_branch(&scene, &dropped, "after-local-commit").await;
    assert_eq!(scene.states().await, [EventState::Held]);
    scene.stage.roll_back(dropped).await;
    assert_eq!(scene.states().await, []);

    let kept = scene.stage.begin().await;
    crash_branch(&scene, &kept, "after-local-commit").await;
    scene.rounds().await;
    assert_eq!(scene.broker.count(), 0);
    scene.stage.commit(kept).await;
    assert_eq!(scene.published("1", 1).await, ["held"]);
    relay.stop().await;
}

async fn a_branch_killed_before_its_commit_leaves_no_event<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    for point in ["before-undo-insert", "before-register", "after-register"] {
        let global = scene.stage.begin().await;
        crash_branch(&scene, &global, point).await;
        global.rollback("test").await.unwrap();
        assert_eq!(scene.states().await, [], "{point}");
    }
}

struct Played<DB: Effect> {
    scene: Scene<DB>,
    prefix: String,
}

impl<DB: Effect> Played<DB> {
    async fn new() -> Self {
        let scene = Scene::<DB>::new().await;
        let table = "CREATE TABLE seen (n INT NOT NULL, payload VARCHAR(20) NOT NULL)";
        DB::raw(scene.pool(), table).await.unwrap();
        for payload in ["a", "b", "c"] {
            scene.emit("1", payload).await;
        }
        Self { scene, prefix: fresh_prefix() }
    }

    async fn seen(&self) -> Vec<String> {
        let sql = "SELECT payload FROM seen ORDER BY n";
        let rows = DB::raw_rows(self.scene.pool(), sql).await.unwrap();
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
    }

    /// Finishes the work with live processes. Returns how often the most delivered event was
    /// delivered.
    async fn finish(&self) -> String {
        let broker = connect(&self.prefix).await;
        let relay = start(Relay::new(self.scene.pool().clone(), broker.clone()));
        let events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
        let consumer = Consumer::new(self.scene.pool().clone(), "payments");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let consuming = tokio::spawn(async move {
            consumer.run(events, effect::<DB>, async { drop(stopped.await) }).await
        });
        self.scene.emit("1", "last").await;
        until(async || self.seen().await.last().is_some_and(|last| last == "last")).await;
        assert_eq!(self.seen().await, ["a", "b", "c", "last"]);
        // The state changes after the event is published.
        until(async || self.scene.states().await == [EventState::Published; 4]).await;
        stop.send(()).unwrap();
        consuming.await.unwrap().unwrap();
        relay.stop().await;
        let most = "SELECT MAX(deliveries) FROM event_inbox";
        self.scene.stage.value(most).await.unwrap()
    }
}

async fn a_relay_killed_before_publishing_loses_nothing<DB: Effect>() {
    let played = Played::<DB>::new().await;
    crash(&played.scene, "relay", &played.prefix, "before-publish").await;
    assert_eq!(played.scene.states().await, [EventState::New; 3]);
    assert_eq!(played.finish().await, "1");
}

async fn a_relay_killed_after_publishing_doubles_no_effect<DB: Effect>() {
    let played = Played::<DB>::new().await;
    crash(&played.scene, "relay", &played.prefix, "after-publish").await;
    assert_eq!(played.scene.states().await, [EventState::New; 3]);
    assert_eq!(played.finish().await, "2", "they were published twice");
}

async fn a_consumer_killed_before_acknowledging_doubles_no_effect<DB: Effect>() {
    let played = Played::<DB>::new().await;
    let relay = start(Relay::new(played.scene.pool().clone(), connect(&played.prefix).await));
    crash(&played.scene, "consumer", &played.prefix, "before-acknowledge").await;
    assert_eq!(played.seen().await, ["a"]);
    relay.stop().await;
    assert_eq!(played.finish().await, "2", "it was delivered twice");
}
