//! Processes that die at the worst moments: a relay between publishing and marking, a consumer
//! between effect and acknowledgement, a branch that has emitted. No event is lost, and none takes
//! effect twice.

use std::time::Duration;

use handfast::outbox::{Consumer, EventState, Relay};
use handfast::{Global, Handfast, Xid};
use handfast_test_services::RoleProcess;
use sqlx::ConnectOptions;
use sqlx::pool::PoolOptions;

use crate::at::on_every_database;
use crate::child::ChildInput;
use crate::inbox::Effect;
use crate::scene::{Scene, TOPIC, event, start, until};
use crate::streams::{connect, effect, fresh_prefix};

on_every_database!(
    a_relay_killed_before_publishing_loses_nothing,
    a_relay_killed_after_publishing_doubles_no_effect,
    a_consumer_killed_before_acknowledging_doubles_no_effect,
    a_branch_killed_after_commit_leaves_its_events_held,
    a_branch_killed_before_its_commit_leaves_no_event,
);

const IDLE: Duration = Duration::from_millis(50);

/// Runs a role in the child process.
pub(crate) async fn play<DB: Effect>(name: &str, role: ChildInput) {
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(&role.url).await.unwrap();
    if let Some((endpoint, xid)) = &role.global {
        return branch(pool, endpoint, xid).await;
    }
    let broker = connect(&role.prefix).await;
    if name == "relay" {
        let relay = Relay::new(pool, broker).lease(Duration::from_millis(1_000));
        relay.run(std::future::pending()).await.unwrap();
    } else {
        let events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
        let consumer = Consumer::new(pool, "payments");
        consumer.run(events, effect::<DB>, std::future::pending()).await.unwrap();
    }
}

/// Runs a branch with a change and an event.
async fn branch<DB: Effect>(pool: sqlx::Pool<DB>, endpoint: &str, xid: &str) {
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
    crash_in(scene, role, prefix, None, point).await;
}

async fn crash_branch<DB: Effect>(scene: &Scene<DB>, global: &Global, point: &str) {
    let global = (scene.stage.tc.endpoint(), global.xid().to_string());
    crash_in(scene, "branch", "", Some(global), point).await;
}

async fn crash_in<DB: Effect>(
    scene: &Scene<DB>,
    role: &str,
    prefix: &str,
    global: Option<(String, String)>,
    point: &str,
) {
    let (database, url) = (DB::NAME_IN_TESTS.to_owned(), scene.pool().connect_options());
    let (url, prefix) = (url.to_url_lossy().to_string(), prefix.to_owned());
    let input = ChildInput { database, url, prefix, global };
    RoleProcess::start(role, &input, &[("HANDFAST_CRASH_POINT", point)]).crashed().await;
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
