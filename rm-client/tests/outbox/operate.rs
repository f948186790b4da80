//! Operations for people: lists, lag, states, purges.

use std::time::Duration;

use handfast::outbox::{self, EventState, Lag};

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start, until};

on_every_database!(lists_and_lag_show_the_states_of_events, only_old_finished_events_are_purged);

async fn lists_and_lag_show_the_states_of_events<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    assert_eq!(outbox::lag(scene.pool()).await.unwrap(), Lag::default());
    scene.emit("1", "a").await;
    let global = scene.stage.begin().await;
    let held = async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        local.emit(&event("2", "b")).await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(held).await;
    let lag = outbox::lag(scene.pool()).await.unwrap();
    assert_eq!((lag.new, lag.held, lag.parked, lag.relays), (1, 1, 0, 0));
    let rows = outbox::list(scene.pool(), Some(EventState::Held), 10).await.unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.topic.as_str(), row.key.as_str()), ("orders", "2"));
    assert_eq!(row.xid.as_deref(), Some(global.xid().as_str()));

    let id = row.id.parse().unwrap();
    for refused in [
        outbox::skip(scene.pool(), id).await,
        outbox::requeue(scene.pool(), id).await,
        outbox::mark_processed(scene.pool(), id).await,
    ] {
        assert_eq!(refused.unwrap_err().code(), "HF-OUTBOX-WRONG-STATE");
    }
    scene.stage.commit(global).await;
    let relay = start(scene.relay());
    until(async || outbox::lag(scene.pool()).await.unwrap().relays == 1).await;
    until(async || scene.states().await == [EventState::Published; 2]).await;
    outbox::mark_processed(scene.pool(), id).await.unwrap();
    assert_eq!(scene.states().await, [EventState::Published, EventState::Processed]);
    relay.stop().await;
}

async fn only_old_finished_events_are_purged<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    scene.emit("1", "a").await;
    scene.emit("1", "b").await;
    let relay = start(scene.relay());
    until(async || scene.states().await == [EventState::Published; 2]).await;
    relay.stop().await;
    scene.emit("1", "c").await;
    let day = Duration::from_secs(86_400);
    assert_eq!(outbox::purge(scene.pool(), day, 10).await.unwrap(), 0);
    assert_eq!(outbox::purge(scene.pool(), Duration::ZERO, 1).await.unwrap(), 1);
    assert_eq!(outbox::purge(scene.pool(), Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(scene.states().await, [EventState::New]);
}
