//! Processes die between the beginning and the end of a branch. The next process that registers the
//! resource finishes it.

use handfast::{GlobalStatus, Xid};

use crate::child::before_the_timeout;
use crate::database::{XaTestDatabase, on_both};
use crate::scene::{DEBIT, Scene, branch};

on_both!(
    a_client_killed_in_phase_one_is_rolled_back_by_another,
    a_client_killed_after_prepare_is_committed_by_another,
    phase_two_is_finished_after_its_client_is_killed,
    a_client_killed_with_its_tm_is_rolled_back_by_timeout,
    a_coordinator_killed_between_prepare_and_commit_goes_on,
    all_killed_between_prepare_and_commit_leave_nothing,
);

/// The crash points of phase one, and whether the branch is prepared there.
const PHASE_ONE: [(&str, bool); 3] =
    [("xa-before-register", false), ("xa-after-register", false), ("xa-after-prepare", true)];

async fn a_client_killed_in_phase_one_is_rolled_back_by_another<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    for (point, prepared) in PHASE_ONE {
        let global = scene.begin().await;
        scene.client(Some(global.xid()), DEBIT).crash_at(point).crashed().await;
        scene.until_prepared(usize::from(prepared)).await;
        let rescuer = scene.rescuer().await;
        global.rollback("test").await.unwrap_or_else(|error| panic!("{point}: {error}"));
        scene.assert_clean([1000, 1000]).await;
        rescuer.leave().await;
    }
}

async fn a_client_killed_after_prepare_is_committed_by_another<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let global = scene.begin().await;
    scene.client(Some(global.xid()), DEBIT).crash_at("xa-after-prepare").crashed().await;
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    assert_eq!(scene.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committing);
    let rescuer = scene.rescuer().await;
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
    rescuer.leave().await;
}

async fn phase_two_is_finished_after_its_client_is_killed<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut cents = 1000;
    for (point, commits) in [
        ("xa-before-phase-two", true),
        ("xa-before-phase-two", false),
        ("xa-after-phase-two", true),
        ("xa-after-phase-two", false),
    ] {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let mut client = scene.client(Some(&xid), DEBIT).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        let ended = tokio::spawn(async move {
            if commits { global.commit().await } else { global.rollback("test").await }
        });
        client.crashed().await;
        let rescuer = scene.rescuer().await;
        ended.await.unwrap().unwrap();
        if commits {
            scene.until_committed(&xid).await;
            cents -= 10;
        }
        scene.assert_clean([cents, 1000]).await;
        rescuer.leave().await;
    }
}

async fn a_client_killed_with_its_tm_is_rolled_back_by_timeout<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let xid = killed_with_its_tm(&scene).await;
    let rescuer = scene.rescuer().await;
    scene.until_rolled_back(&xid).await;
    scene.assert_clean([1000, 1000]).await;
    rescuer.leave().await;
}

/// Kills a client that is also the TM of its global, with a prepared branch.
async fn killed_with_its_tm<DB: XaTestDatabase>(scene: &Scene<DB>) -> Xid {
    let killed = async |timeout| {
        let client = scene.client(None, DEBIT).timeout(timeout);
        client.crash_with_its_global_at("xa-after-prepare").await
    };
    before_the_timeout(killed).await.parse().unwrap()
}

async fn a_coordinator_killed_between_prepare_and_commit_goes_on<DB: XaTestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    branch(&resource, &global, DEBIT).await.unwrap();
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
}

async fn all_killed_between_prepare_and_commit_leave_nothing<DB: XaTestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let xid = killed_with_its_tm(&scene).await;
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    let rescuer = scene.rescuer().await;
    scene.until_rolled_back(&xid).await;
    scene.assert_clean([1000, 1000]).await;
    rescuer.leave().await;
}
