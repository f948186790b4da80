//! The coordinator dies before it has stored what it has answered: the only branch of its global,
//! whose local commit decides it.

use handfast::guarded::{self, GuardMode, GuardStart};
use handfast::outbox::Event;
use handfast::{GlobalStatus, TransactionError, Xid};
use handfast_test_services::until;
use sqlx::{MySql, Postgres};

use crate::at::{TestDatabase, on_every_database};
use crate::child::PATIENCE;
use crate::commit_wire::{CommitWire, Fault, Wired};
use crate::scene::{CHANGES, Scene, alone};

on_every_database!(a_lost_branch_has_committed, a_branch_that_holds_an_event_is_not_lost);

/// A scene whose coordinator dies before it stores anything more.
async fn scene_with_a_coordinator_that_dies<DB: TestDatabase>() -> Scene<DB> {
    let mut scene = Scene::<DB>::new().await;
    scene.coordinator.kill().await;
    scene.coordinator.restart_to_crash_at("after-decide").await;
    scene.handfast.until_ready(PATIENCE).await.unwrap();
    scene
}

/// Runs the last branch of a global while the coordinator dies and comes back.
async fn run_while_the_coordinator_dies<DB: TestDatabase>(
    scene: &mut Scene<DB>,
    branch: impl AsyncFnOnce() -> Result<(), sqlx::Error>,
) -> Result<Xid, TransactionError<sqlx::Error>> {
    let Scene { coordinator, handfast, .. } = scene;
    let ended = handfast.transaction("change").run(async |tx| {
        branch().await?;
        Ok(tx.xid().cloned().unwrap())
    });
    let dies = async {
        coordinator.crashed().await;
        coordinator.restart().await;
    };
    futures::join!(ended, dies).0
}

/// Its caller is told so, and its process deletes the undo row, which no coordinator asks for.
async fn a_lost_branch_has_committed<DB: TestDatabase>() {
    let mut scene = scene_with_a_coordinator_that_dies::<DB>().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let last = resource.last();
    let branch = async || alone(&last, &CHANGES).await;
    let xid = run_while_the_coordinator_dies(&mut scene, branch).await.unwrap();
    assert_eq!(scene.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Unknown);
    let changed = scene.bank.accounts().await;
    assert_ne!(changed, before);
    until("its undo row is deleted", async || scene.bank.undo_rows().await == (0, 0)).await;
    assert_eq!(scene.bank.accounts().await, changed);
    scene.assert_finished().await;
}

/// Its registration is stored before it commits: otherwise the event would stay held for good.
async fn a_branch_that_holds_an_event_is_not_lost<DB: TestDatabase>() {
    let mut scene = scene_with_a_coordinator_that_dies::<DB>().await;
    let last = scene.resource().await.last();
    let branch = async || {
        let work = last.transaction(async |mut local| {
            DB::run(&mut local, CHANGES[0]).await?;
            local.emit(&Event::new("account", "1")).await.unwrap();
            Ok(())
        });
        work.await
    };
    is_not_lost(&mut scene, branch).await;
}

/// The guard would hold off writers for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_with_guarded_rows_is_not_lost() {
    let mut scene = scene_with_a_coordinator_that_dies::<Postgres>().await;
    let (mode, at_once) = (GuardMode::Refuse, GuardStart::AtOnce);
    guarded::enable(&scene.bank.pool, "account", mode, at_once).await.unwrap();
    let last = scene.resource().await.last();
    is_not_lost(&mut scene, async || alone(&last, &CHANGES).await).await;
}

async fn is_not_lost<DB: TestDatabase>(
    scene: &mut Scene<DB>,
    branch: impl AsyncFnOnce() -> Result<(), sqlx::Error>,
) {
    let before = scene.bank.accounts().await;
    let error = run_while_the_coordinator_dies(scene, branch).await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-FORGOTTEN", "{error}");
    scene.assert_clean(&before, 0).await;
}

/// A retry would do it a second time if it were taken for one that has left nothing.
async fn a_lost_branch_in_doubt_is_unknown<DB: Wired>() {
    let mut scene = scene_with_a_coordinator_that_dies::<DB>().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap();
    wire.set(Fault::LoseAnswer);
    let last = resource.last();
    let branch = async || alone(&last, &CHANGES).await;
    let error = run_while_the_coordinator_dies(&mut scene, branch).await.unwrap_err();
    assert!(wire.has_broken(), "COMMIT has passed the wire");
    assert!(matches!(error, TransactionError::Unknown { .. }), "{error:?}");
    assert_eq!(error.code(), "HF-TM-UNKNOWN");
    assert_ne!(scene.bank.accounts().await, before);
    scene.assert_finished().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_branch_in_doubt_is_unknown_on_postgresql() {
    a_lost_branch_in_doubt_is_unknown::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_branch_in_doubt_is_unknown_on_mariadb() {
    a_lost_branch_in_doubt_is_unknown::<MySql>().await;
}
