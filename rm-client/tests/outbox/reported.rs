//! Reports of relays to a coordinator, and what operators ask of them over it.

use std::time::Duration;

use handfast::Handfast;
use handfast::outbox::EventState;
use handfast_server::admin::model::{EventPage, ParkedEvent};
use handfast_server::config::Config;
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::until_some;
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start, until};

on_every_database!(
    operators_see_what_a_relay_sees_and_requeue_or_skip_what_is_parked,
    a_relay_goes_on_without_its_coordinator,
);

/// A coordinator with its admin port.
struct Office {
    server: RunningServer,
    http: reqwest::Client,
}

impl Office {
    async fn open() -> Self {
        // Fails only if another test has installed it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let server = Server::start(Config::tiny()).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { server, http }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.server.grpc_address)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1/{path}", self.server.admin_address)
    }

    async fn events(&self) -> EventPage {
        let answer = self.http.get(self.url("events")).send().await.unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// Waits for a parked event that was not parked before this time.
    async fn parked_after(&self, before: &str) -> ParkedEvent {
        until_some("an event is reported as parked", async || {
            let events = self.events().await;
            events.items.into_iter().find(|event| &*event.parked_at > before)
        })
        .await
    }

    /// Has the relay do something, and returns the status of the answer and its text.
    async fn act(&self, event: &str, verb: &str) -> (u16, String) {
        let post = self.http.post(self.url(&format!("events/{event}/{verb}")));
        let answer = post.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

async fn operators_see_what_a_relay_sees_and_requeue_or_skip_what_is_parked<DB: TestDatabase>() {
    let (scene, office) = (Scene::<DB>::new().await, Office::open().await);
    let handfast = Handfast::connect(office.endpoint()).application("shop").await.unwrap();
    scene.broker.refuse("bad");
    let global = scene.stage.begin().await;
    let hold = async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        local.emit(&event("3", "held")).await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(hold).await;
    for payload in ["bad", "good"] {
        scene.emit("1", payload).await;
    }
    let relay = start(scene.relay().attempts_max(2).report_to(&handfast, "orders"));

    let parked = office.parked_after("").await;
    assert_eq!((&*parked.application, &*parked.outbox), ("shop", "orders"));
    assert_eq!((&*parked.topic, &*parked.key, parked.attempts), ("orders", "1", 2));
    assert!(parked.reason.contains("on purpose"), "{}", parked.reason);
    assert!(parked.age_ms < 60_000 && parked.emitted_at <= parked.parked_at, "{parked:?}");
    let EventPage { relays, .. } = office.events().await;
    let [seen] = &*relays else { panic!("{relays:?}") };
    assert_eq!((seen.held, seen.new, seen.parked), (1, 1, 1), "{seen:?}");
    assert_eq!((seen.lane_count, seen.is_silent, &seen.error), (64, false, &None));
    assert!(seen.oldest_at.is_some() && !seen.lanes.is_empty(), "{seen:?}");

    // Requeued, it is refused and parked again; then it is accepted.
    assert_eq!(office.act(&parked.event, "requeue").await.0, 200);
    let again = office.parked_after(&parked.parked_at).await;
    assert_eq!(again.event, parked.event);
    assert_eq!(scene.broker.refusals("bad"), 4);
    scene.broker.accept("bad");
    assert_eq!(office.act(&parked.event, "requeue").await.0, 200);
    assert_eq!(scene.published("1", 2).await, ["bad", "good"]);

    // Skipped, it is never published, and its key goes on.
    scene.broker.refuse("ugly");
    for payload in ["ugly", "fine"] {
        scene.emit("2", payload).await;
    }
    let parked = office.parked_after(&again.parked_at).await;
    let (status, text) = office.act(&parked.event, "skip").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(r#""state":"skipped""#), "{text}");
    assert_eq!(scene.published("2", 1).await, ["fine"]);
    until(async || office.events().await.items.is_empty()).await;
    let (status, text) = office.act(&parked.event, "skip").await;
    assert_eq!(status, 404);
    assert!(text.contains("HF-ADM-UNKNOWN-EVENT"), "{text}");

    // Stopped, it takes its leave.
    relay.stop().await;
    assert_eq!(office.events().await.relays, []);
    scene.stage.commit(global).await;
}

async fn a_relay_goes_on_without_its_coordinator<DB: TestDatabase>() {
    let (scene, office) = (Scene::<DB>::new().await, Office::open().await);
    let handfast = Handfast::connect(office.endpoint()).application("shop").lazy().unwrap();
    let relay = start(scene.relay().report_to(&handfast, "orders"));
    until(async || office.events().await.relays.len() == 1).await;
    drop(office);
    scene.emit("1", "a").await;
    assert_eq!(scene.published("1", 1).await, ["a"]);
    relay.stop().await;
    assert_eq!(scene.states().await, [EventState::Published]);
}

/// The relay's own connection is all that there is: nothing is taken from it.
#[tokio::test]
async fn a_pool_without_a_connection_to_spare_is_reported() {
    let (scene, office) = (Scene::<Sqlite>::new().await, Office::open().await);
    let handfast = Handfast::connect(office.endpoint()).application("shop").await.unwrap();
    let options: SqliteConnectOptions = (*scene.pool().connect_options()).clone();
    let one = SqlitePoolOptions::new().max_connections(1);
    let one = one.acquire_timeout(Duration::from_secs(30)).connect_with(options).await.unwrap();
    let relay = start(scene.relay_over(one).report_to(&handfast, "orders"));
    let error = until_some("the relay reports an error", async || {
        office.events().await.relays.into_iter().find_map(|relay| relay.error)
    });
    assert!(error.await.contains("give it one more"));
    scene.emit("1", "a").await;
    assert_eq!(scene.published("1", 1).await, ["a"]);
    relay.stop().await;
}
