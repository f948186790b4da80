//! Events of an AT branch whose rollback an operator ends: they are published if its rows stay.

use handfast_core::Resolution;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event, start};

on_every_database!(
    restoring_the_clean_rows_drops_the_event,
    forcing_the_before_image_drops_the_event,
    accepting_the_rows_publishes_the_event,
);

/// A branch has a dirty row, a clean row and an event. Checks the accounts and the published events
/// after the operator's answer.
async fn ends_as<DB: TestDatabase>(resolution: Resolution, cents: [&str; 2], sent: &[&str]) {
    let scene = Scene::<DB>::new().await;
    let relay = start(scene.relay());
    let global = scene.stage.begin().await;
    let work = async {
        let mut local = scene.stage.resource.begin().await.unwrap();
        DB::run(&mut local, "UPDATE account SET cents = cents - 1").await.unwrap();
        local.emit(&event("1", "taken")).await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(work).await;
    DB::raw(scene.pool(), "UPDATE account SET cents = 777 WHERE id = 1").await.unwrap();
    let refused = scene.stage.refused(global).await;
    assert_eq!((refused.rows.total, refused.rows.dirty), (2, 1));
    assert_eq!(refused.rows.held_events, Some(1));
    scene.rounds().await;
    assert_eq!(scene.broker.count(), 0, "it is held until an operator has answered");

    scene.stage.end(&refused, resolution).await;
    let found = scene.stage.dump("account", &["cents"]).await;
    let mut expected = cents.map(|text| vec![Some(text.to_owned())]);
    expected.sort();
    assert_eq!(found, expected);
    scene.emit("1", "behind").await;
    let expected: Vec<&str> = sent.iter().copied().chain(["behind"]).collect();
    assert_eq!(scene.published("1", expected.len()).await, expected);
    assert_eq!(scene.stage.undo_rows().await, 0);
    relay.stop().await;
}

async fn restoring_the_clean_rows_drops_the_event<DB: TestDatabase>() {
    ends_as::<DB>(Resolution::RestoreClean, ["777", "100"], &[]).await;
}

async fn forcing_the_before_image_drops_the_event<DB: TestDatabase>() {
    ends_as::<DB>(Resolution::ForceBefore, ["100", "100"], &[]).await;
}

/// The event was dropped, although the rows that it reports stayed.
async fn accepting_the_rows_publishes_the_event<DB: TestDatabase>() {
    ends_as::<DB>(Resolution::AcceptCurrent, ["777", "99"], &["taken"]).await;
}
