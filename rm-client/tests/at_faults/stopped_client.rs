//! A client is suspended in phase one while its global is rolled back, and then continues. It is
//! too late, and its changes are undone.

use std::time::Duration;

use handfast_server::admin::model::Status;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{CHANGES, Scene, branch, roll_back};

on_every_database!(
    a_late_registration_is_refused,
    a_late_commit_is_undone,
    a_late_replay_is_refused_by_the_guard_row,
    a_suspended_read_sees_no_undone_row,
);

async fn a_late_registration_is_refused<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    for point in ["before-undo-insert", "before-register"] {
        let global = scene.begin().await;
        let mut client = scene.client(Some(global.xid()), &CHANGES).stop_at(point);
        client.stopped().await;
        roll_back(global).await.unwrap().unwrap();
        client.go_on();
        assert_eq!(client.next_report::<String>().await, "HF-TC-ALREADY-DECIDED", "{point}");
        scene.assert_clean(&before, 0).await;
    }
}

/// The undo row is already inserted, so the rollback waits for COMMIT and undoes the branch. On
/// MariaDB the undo row is sent with COMMIT and conflicts with the guard row.
async fn a_late_commit_is_undone<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let mut client = scene.client(Some(&xid), &CHANGES).stop_at("before-local-commit");
    client.stopped().await;
    let rolled_back = roll_back(global);
    scene.until(&xid, Status::RollingBack).await;
    let _rescuer = scene.rescuer().await;
    scene.coordinator.until_phase_two_is_under_way().await;
    if DB::NAME_IN_TESTS == "mysql" {
        rolled_back.await.unwrap().unwrap();
        client.go_on();
        assert_eq!(client.next_report::<String>().await, "HF-AT-GLOBAL-FINISHED");
        return scene.assert_clean(&before, 1).await;
    }
    client.go_on();
    assert_eq!(client.next_report::<String>().await, "done");
    rolled_back.await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

/// A branch that waited for a row is registered while no local transaction is open. If it is rolled
/// back there, it leaves a guard row, and its replay fails.
async fn a_late_replay_is_refused_by_the_guard_row<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let holder = scene.begin().await;
    branch(&resource, &holder, &["UPDATE account SET cents = 0 WHERE id = 1"]).await.unwrap();

    let global = scene.begin().await;
    let mut client = scene.client(Some(global.xid()), &CHANGES).stop_at("before-replay");
    scene.until_a_request_waits().await;
    holder.rollback("let the other go on").await.unwrap();
    client.stopped().await;
    roll_back(global).await.unwrap().unwrap();
    client.go_on();
    // Where it goes in one call with COMMIT, the undo row is sent only after the coordinator has
    // registered the branch.
    let merges = DB::NAME_IN_TESTS != "postgres";
    let told = if merges { "HF-TC-ALREADY-DECIDED" } else { "HF-AT-GLOBAL-FINISHED" };
    assert_eq!(client.next_report::<String>().await, told);
    scene.assert_clean(&before, 1).await;
}

/// A globally committed read is suspended between reading a row and checking its lock. The row must
/// still be the same when the lock is checked.
async fn a_suspended_read_sees_no_undone_row<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let writer = scene.begin().await;
    branch(&resource, &writer, &["UPDATE account SET cents = 0 WHERE id = 1"]).await.unwrap();
    let mut reader = scene.reader(1).stop_at("before-check");
    reader.stopped().await;
    let mut rolled_back = roll_back(writer);
    // Long enough for a rollback that does not have to wait.
    let undone = tokio::time::timeout(Duration::from_secs(2), &mut rolled_back).await;
    reader.go_on();
    assert_eq!(reader.next_report::<String>().await, "1000");
    if undone.is_err() {
        rolled_back.await.unwrap().unwrap();
    }
    scene.assert_clean(&before, 0).await;
}
