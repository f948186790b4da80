//! The order of a key's events, despite running writers, refusals, parked events and brokers that
//! are down.

use std::time::Duration;

use handfast::outbox::{self, EventState, Relay};
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start, until};

on_every_database!(
    refused_events_keep_their_key_in_order,
    a_parked_event_blocks_its_key,
    a_broker_that_is_down_parks_nothing,
    a_hot_key_stays_in_order,
);

/// An event that was numbered first and is committed last is published first all the same.
async fn a_late_writer_is_not_overtaken<DB: TestDatabase>(others_go_on: bool) {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    // This transaction has begun, and on PostgreSQL has its number, before the late one.
    let mut early = scene.pool().begin().await.unwrap();
    outbox::emit(&mut early, &event("3", "x")).await.unwrap();
    let mut late = scene.pool().begin().await.unwrap();
    outbox::emit(&mut late, &event("1", "first")).await.unwrap();
    outbox::emit(&mut early, &event("1", "second")).await.unwrap();
    early.commit().await.unwrap();
    scene.emit("2", "beside").await;
    if others_go_on {
        assert_eq!(scene.published("2", 1).await, ["beside"]);
    }
    scene.rounds().await;
    assert_eq!(scene.broker.of("1"), Vec::<String>::new());
    late.commit().await.unwrap();
    assert_eq!(scene.published("1", 2).await, ["first", "second"]);
    assert_eq!(scene.published("2", 1).await, ["beside"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_writer_is_not_overtaken_on_postgres() {
    a_late_writer_is_not_overtaken::<Postgres>(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_writer_is_not_overtaken_on_mysql() {
    a_late_writer_is_not_overtaken::<MySql>(true).await;
}

/// SQLite has one writer at a time: a late writer that rolls back leaves only a gap in the numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_no_obstacle_on_sqlite() {
    let scene = Scene::<Sqlite>::new().await;
    let relay = start(scene.relay());
    let mut dropped = scene.pool().begin().await.unwrap();
    outbox::emit(&mut dropped, &event("1", "dropped")).await.unwrap();
    dropped.rollback().await.unwrap();
    scene.emit("1", "kept").await;
    assert_eq!(scene.published("1", 1).await, ["kept"]);
    relay.stop().await;
}

async fn refused_events_keep_their_key_in_order<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    scene.broker.refuse("b");
    let relay = start(scene.relay().attempts_max(1_000));
    for payload in ["a", "b", "c", "d"] {
        scene.emit("1", payload).await;
    }
    scene.emit("2", "beside").await;
    assert_eq!(scene.published("2", 1).await, ["beside"]);
    until(async || scene.broker.refusals("b") >= 5).await;
    assert_eq!(scene.broker.of("1"), ["a"]);
    scene.broker.accept("b");
    assert_eq!(scene.published("1", 4).await, ["a", "b", "c", "d"]);
    relay.stop().await;
}

/// The database's clock advances while a statement runs, here by a millisecond each time it is
/// read. Events behind one that becomes due meanwhile must wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_due_during_a_search_is_not_overtaken() {
    const KEYS: usize = 10;
    let scene = Scene::<Postgres>::new().await;
    let quick_clock = "CREATE SCHEMA quick; CREATE SEQUENCE quick.ticks; \
        CREATE FUNCTION quick.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS \
        $$ SELECT pg_catalog.clock_timestamp() + nextval('quick.ticks') * interval '1 ms' $$; \
        DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = quick, pg_catalog, public', \
        current_database()); END $$";
    sqlx::raw_sql(quick_clock).execute(scene.pool()).await.unwrap();
    let options = (*scene.pool().connect_options()).clone();
    let pool = Pool::<Postgres>::connect_with(options).await.unwrap();
    scene.broker.refuse("refused");
    let relay = Relay::new(pool.clone(), scene.broker.clone()).attempts_max(1_000_000);
    let pause = Duration::from_millis(20);
    let relay = start(relay.idle_max(Duration::from_millis(5)).backoff(pause, pause));
    for key in 0..KEYS {
        scene.emit(&key.to_string(), "refused").await;
        scene.emit(&key.to_string(), "behind").await;
    }
    until(async || scene.broker.refusals("refused") >= 500).await;
    assert_eq!(scene.broker.count(), 0, "an event was published before an earlier one of its key");
    scene.broker.accept("refused");
    for key in 0..KEYS {
        assert_eq!(scene.published(&key.to_string(), 2).await, ["refused", "behind"]);
    }
    relay.stop().await;
    pool.close().await;
}

async fn a_parked_event_blocks_its_key<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    scene.broker.refuse("a");
    scene.broker.refuse("b");
    let relay = start(scene.relay().attempts_max(3));
    for payload in ["a", "b", "c"] {
        scene.emit("1", payload).await;
    }
    let parked = async || {
        let rows = outbox::list(scene.pool(), Some(EventState::Parked), 10).await.unwrap();
        rows.into_iter().next()
    };
    until(async || parked().await.is_some()).await;
    let row = parked().await.unwrap();
    assert_eq!((row.attempts, row.last_error.as_deref()), (3, Some("on purpose")));
    scene.rounds().await;
    assert_eq!(scene.broker.refusals("a"), 3, "a parked event is left alone");
    assert_eq!(scene.broker.of("1"), Vec::<String>::new());

    scene.broker.accept("a");
    outbox::requeue(scene.pool(), row.id.parse().unwrap()).await.unwrap();
    assert_eq!(scene.published("1", 1).await, ["a"]);
    until(async || parked().await.is_some()).await;
    outbox::skip(scene.pool(), parked().await.unwrap().id.parse().unwrap()).await.unwrap();
    assert_eq!(scene.published("1", 2).await, ["a", "c"]);
    relay.stop().await;
}

async fn a_broker_that_is_down_parks_nothing<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    scene.broker.set_down(true);
    let relay = start(scene.relay().attempts_max(1));
    for payload in ["a", "b"] {
        scene.emit("1", payload).await;
    }
    until(async || scene.broker.calls() >= 5).await;
    assert_eq!(scene.states().await, [EventState::New; 2]);
    scene.broker.set_down(false);
    assert_eq!(scene.published("1", 2).await, ["a", "b"]);
    relay.stop().await;
}

async fn a_hot_key_stays_in_order<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay().batch(7).idle_max(Duration::from_millis(1)));
    let payloads: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    for payload in &payloads {
        scene.emit("1", payload).await;
    }
    assert_eq!(scene.published("1", 60).await, payloads);
    relay.stop().await;
}
