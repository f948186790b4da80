//! Several concurrent relays, and relays that die.

use std::time::Duration;

use futures::future::join_all;
use handfast::outbox::EventState;
use sqlx::pool::PoolOptions;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, start, until};

on_every_database!(
    relays_share_the_lanes,
    a_dead_relay_is_replaced,
    a_relay_works_with_a_single_connection,
);

const KEYS: usize = 12;
const EVENTS: usize = 10;
/// So long that a relay on a busy machine loses no lane, and gives its lanes back before it stops.
const LEASE: Duration = Duration::from_secs(5);

async fn emit_all<DB: TestDatabase>(scene: &Scene<DB>) {
    for n in 0..EVENTS {
        let keys =
            (0..KEYS).map(|key| async move { scene.emit(&key.to_string(), &n.to_string()).await });
        join_all(keys).await;
    }
}

/// Returns how many lanes each owner has, the most first.
async fn owners<DB: TestDatabase>(scene: &Scene<DB>) -> Vec<String> {
    let sql = format!(
        "SELECT CAST(COUNT(*) AS {}) FROM event_lane WHERE until_ms > 0 GROUP BY owner \
         ORDER BY COUNT(*) DESC",
        DB::TEXT
    );
    let rows = DB::raw_rows(scene.pool(), &sql).await.unwrap();
    rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
}

async fn relays_share_the_lanes<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let first = start(scene.relay().lease(LEASE));
    until(async || owners(&scene).await == ["64"]).await;
    let second = start(scene.relay().lease(LEASE));
    until(async || owners(&scene).await == ["32", "32"]).await;
    emit_all(&scene).await;
    until(async || scene.broker.count() >= KEYS * EVENTS).await;
    let expected: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
    for key in 0..KEYS {
        assert_eq!(scene.broker.of(&key.to_string()), expected, "key {key}");
    }
    second.stop().await;
    until(async || owners(&scene).await == ["64"]).await;
    first.stop().await;
    assert_eq!(owners(&scene).await, Vec::<String>::new());
}

async fn a_dead_relay_is_replaced<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let doomed = start(scene.relay().batch(3));
    let survivor = start(scene.relay().batch(3));
    until(async || owners(&scene).await == ["32", "32"]).await;
    emit_all(&scene).await;
    until(async || scene.broker.count() > 0).await;
    doomed.kill().await;
    until(async || scene.states().await.iter().all(|state| *state == EventState::Published)).await;
    for key in 0..KEYS {
        let mut seen = scene.broker.of(&key.to_string());
        // Events that were published and not marked came again, and none before them.
        let mut first: Vec<String> = Vec::new();
        seen.retain(|payload| {
            !first.contains(payload) && {
                first.push(payload.clone());
                true
            }
        });
        let expected: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
        assert_eq!(seen, expected, "key {key}");
    }
    survivor.stop().await;
}

/// The relay waited in each round for another connection: for its purge, and on PostgreSQL for the
/// notifications.
async fn a_relay_works_with_a_single_connection<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let options = scene.pool().connect_options().as_ref().clone();
    let pool = PoolOptions::<DB>::new().max_connections(1).connect_with(options).await.unwrap();
    let relay = start(scene.relay());
    scene.emit("1", "a").await;
    scene.published("1", 1).await;
    relay.stop().await;
    let relay = start(scene.relay_over(pool).retention(Duration::ZERO));
    until(async || scene.states().await.is_empty()).await;
    for payload in ["b", "c"] {
        scene.emit("1", payload).await;
        scene.rounds().await;
    }
    assert_eq!(scene.published("1", 3).await, ["a", "b", "c"]);
    relay.stop().await;
}
