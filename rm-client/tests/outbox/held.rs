//! Events of AT branches: held until the global has committed, dropped when it rolls back.

use handfast::Global;
use handfast::outbox::EventState;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start, until};

on_every_database!(
    events_are_published_after_the_global_commits,
    events_are_dropped_after_the_global_rolls_back,
    a_branch_with_events_alone_is_registered,
    a_held_event_keeps_its_key_in_order,
    events_rolled_back_to_a_savepoint_are_not_published,
    a_branch_that_was_rolled_back_first_emits_nothing,
);

/// Runs a branch that debits a cent and emits events.
async fn branch<DB: TestDatabase>(scene: &Scene<DB>, global: &Global, events: &[(&str, &str)]) {
    let work = async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        DB::run(&mut local, "UPDATE account SET cents = cents - 1 WHERE id = 1").await.unwrap();
        for (key, payload) in events {
            local.emit(&event(key, payload)).await.unwrap();
        }
        local.commit().await.unwrap();
    };
    global.scope(work).await;
}

async fn events_are_published_after_the_global_commits<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let global = scene.stage.begin().await;
    branch(&scene, &global, &[("1", "a"), ("1", "b"), ("2", "c")]).await;
    scene.rounds().await;
    assert_eq!(scene.broker.count(), 0, "the global is not decided");
    assert_eq!(scene.states().await, [EventState::Held; 3]);
    scene.stage.commit(global).await;
    assert_eq!(scene.published("1", 2).await, ["a", "b"]);
    assert_eq!(scene.published("2", 1).await, ["c"]);
    assert_eq!(scene.stage.undo_rows().await, 0);
    relay.stop().await;
}

async fn events_are_dropped_after_the_global_rolls_back<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let global = scene.stage.begin().await;
    branch(&scene, &global, &[("1", "a"), ("2", "b")]).await;
    branch(&scene, &global, &[("1", "c")]).await;
    scene.stage.roll_back(global).await;
    assert_eq!(scene.states().await, []);
    assert_eq!(scene.stage.undo_rows().await, 0);
    scene.emit("1", "after").await;
    assert_eq!(scene.published("1", 1).await, ["after"]);
    assert_eq!(scene.broker.count(), 1);
    relay.stop().await;
}

async fn a_branch_with_events_alone_is_registered<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    for (payload, commits) in [("dropped", false), ("kept", true)] {
        let global = scene.stage.begin().await;
        let work = async {
            let mut local = scene.stage.resource.begin().await.unwrap();
            local.emit(&event("1", payload)).await.unwrap();
            local.commit().await.unwrap();
        };
        global.scope(work).await;
        scene.rounds().await;
        assert_eq!(scene.broker.count(), 0);
        if commits {
            scene.stage.commit(global).await;
        } else {
            scene.stage.roll_back(global).await;
        }
    }
    assert_eq!(scene.published("1", 1).await, ["kept"]);
    relay.stop().await;
}

async fn a_held_event_keeps_its_key_in_order<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let global = scene.stage.begin().await;
    branch(&scene, &global, &[("1", "held")]).await;
    scene.emit("1", "behind").await;
    scene.emit("2", "beside").await;
    assert_eq!(scene.published("2", 1).await, ["beside"]);
    scene.rounds().await;
    assert_eq!(scene.broker.of("1"), Vec::<String>::new());
    scene.stage.commit(global).await;
    assert_eq!(scene.published("1", 2).await, ["held", "behind"]);
    relay.stop().await;
}

async fn events_rolled_back_to_a_savepoint_are_not_published<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let global = scene.stage.begin().await;
    let work = async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        local.savepoint("before").await.unwrap();
        local.emit(&event("1", "taken back")).await.unwrap();
        local.rollback_to("before").await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(work).await;
    scene.stage.commit(global).await;
    scene.emit("1", "after").await;
    assert_eq!(scene.published("1", 1).await, ["after"]);
    until(async || scene.stage.undo_rows().await == 0).await;
    relay.stop().await;
}

async fn a_branch_that_was_rolled_back_first_emits_nothing<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let global = scene.stage.begin().await;
    let local = global.scope(async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        local.emit(&event("1", "late")).await.unwrap();
        local
    });
    let local = local.await;
    global.rollback("test").await.unwrap();
    local.commit().await.unwrap_err();
    assert_eq!(scene.states().await, []);
}
