//! Events in plain local transactions.

use handfast::outbox::{self, Event, EventState};

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start, until};

on_every_database!(
    an_event_commits_or_rolls_back_with_its_transaction,
    an_event_arrives_as_emitted,
    a_missing_table_is_named,
    no_event_is_held_outside_a_global,
);

async fn an_event_commits_or_rolls_back_with_its_transaction<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut dropped = scene.pool().begin().await.unwrap();
    outbox::emit(&mut dropped, &event("1", "dropped")).await.unwrap();
    dropped.rollback().await.unwrap();
    assert_eq!(scene.states().await, []);
    scene.emit("1", "kept").await;
    assert_eq!(scene.states().await, [EventState::New]);
    let relay = start(scene.relay());
    assert_eq!(scene.published("1", 1).await, ["kept"]);
    until(async || scene.states().await == [EventState::Published]).await;
    relay.stop().await;
}

async fn an_event_arrives_as_emitted<DB: TestDatabase>() {
    use handfast::outbox::{InProcess, Relay, Subscription};
    let scene = Scene::<DB>::new().await;
    let sent = Event::new("Zähler / 'x'", "κλειδί \\ \"7\"")
        .header("trace", "00-ab\"c'")
        .payload(vec![0, 255, 10, 39]);
    let mut local = scene.pool().begin().await.unwrap();
    outbox::emit(&mut local, &sent).await.unwrap();
    local.commit().await.unwrap();
    let broker = InProcess::new();
    let mut events = broker.subscribe(sent.topic());
    let relay = start(Relay::new(scene.pool().clone(), broker));
    let delivery = events.next().await.unwrap();
    assert_eq!(delivery.event, sent);
    events.acknowledge(&delivery).await.unwrap();
    until(async || scene.states().await == [EventState::Published]).await;
    relay.stop().await;
}

async fn a_missing_table_is_named<DB: TestDatabase>() {
    let (pool, _directory) = DB::create().await;
    let mut local = pool.begin().await.unwrap();
    let error = outbox::emit(&mut local, &event("1", "a")).await.unwrap_err();
    assert_eq!(error.code(), "HF-OUTBOX-TABLE-MISSING");
    drop(local);
    let broker = crate::scene::Recorder::default();
    let error = outbox::Relay::new(pool, broker).run(std::future::pending()).await.unwrap_err();
    assert_eq!(error.code(), "HF-OUTBOX-TABLE-MISSING");
}

async fn no_event_is_held_outside_a_global<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut local = scene.stage.resource.begin().await.unwrap();
    local.emit(&event("1", "a")).await.unwrap();
    local.commit().await.unwrap();
    assert_eq!(scene.states().await, [EventState::New]);
    assert_eq!(scene.stage.undo_rows().await, 0);
}
