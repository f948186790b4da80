//! A database that accepts requests and never answers: its host has vanished behind a proxy, or
//! during a statement. No connection breaks, so only a time limit ends the wait.

use std::time::Duration;

use handfast::outbox::{Broker, Consumer, InProcess};
use handfast_test_services::Wire;
use sqlx::{MySql, Postgres};

use crate::inbox::Effect;
use crate::scene::{PATIENCE, Scene, TOPIC, event, start, until};
use crate::streams::effect;
use crate::wired::{Wired, wire_to};

macro_rules! on_every_server {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test] async fn $name() { super::$name::<super::Postgres>().await })* }
        mod mysql { $(#[tokio::test] async fn $name() { super::$name::<super::MySql>().await })* }
    };
}

on_every_server!(
    a_relay_stops_during_a_silence,
    a_relay_goes_on_after_a_silence,
    an_effect_is_tried_again_after_a_silence,
);

/// Waits until a client waits for an answer.
async fn fallen_silent(wire: &Wire) {
    until(async || wire.is_silent()).await;
}

/// Bytes that occur only in a claim.
const CLAIM: &[u8] = b"SKIP LOCKED";
const EFFECT: &[u8] = b"INSERT INTO seen";

async fn a_relay_stops_during_a_silence<DB: Wired>() {
    let scene = Scene::<DB>::new().await;
    let (wire, pool) = wire_to(scene.pool(), CLAIM).await;
    let relay = start(scene.relay_over(pool));
    scene.emit("1", "a").await;
    fallen_silent(&wire).await;
    tokio::time::timeout(PATIENCE, relay.stop()).await.expect("a silence keeps no relay");
}

async fn a_relay_goes_on_after_a_silence<DB: Wired>() {
    let scene = Scene::<DB>::new().await;
    let (wire, pool) = wire_to(scene.pool(), CLAIM).await;
    let relay = start(scene.relay_over(pool));
    scene.emit("1", "a").await;
    fallen_silent(&wire).await;
    wire.answer_again();
    assert_eq!(scene.published("1", 1).await, ["a"]);
    relay.stop().await;
}

async fn an_effect_is_tried_again_after_a_silence<DB: Wired + Effect>() {
    let scene = Scene::<DB>::new().await;
    let table = "CREATE TABLE seen (n INT NOT NULL, payload VARCHAR(20) NOT NULL)";
    DB::raw(scene.pool(), table).await.unwrap();
    let (wire, pool) = wire_to(scene.pool(), EFFECT).await;
    let broker = InProcess::new();
    let events = broker.subscribe(TOPIC);
    let consumer = Consumer::new(pool, "payments").attempt_max(Duration::from_secs(5));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consuming = tokio::spawn(async move {
        consumer.run(events, effect::<DB>, async { drop(stopped.await) }).await
    });
    let published = tokio::spawn(async move { broker.publish(&event("1", "a")).await });
    fallen_silent(&wire).await;
    wire.answer_again();
    let acknowledged = tokio::time::timeout(PATIENCE, published).await;
    acknowledged.expect("a silence keeps no effect").unwrap().unwrap();
    assert_eq!(scene.stage.value("SELECT payload FROM seen").await.as_deref(), Some("a"));
    stop.send(()).unwrap();
    consuming.await.unwrap().unwrap();
}
