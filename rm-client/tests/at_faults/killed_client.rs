//! A client dies at each crash point. The next process that registers its resource finishes its
//! branch.

use handfast::GlobalStatus;
use handfast_server::admin::model::{RollbackReason, Status};

use crate::at::{TestDatabase, on_every_database};
use crate::child::before_the_timeout;
use crate::scene::{CHANGES, Scene, roll_back};

on_every_database!(
    a_client_killed_in_phase_one_is_undone_by_another,
    a_client_killed_with_its_tm_is_undone_after_the_timeout,
    a_rollback_is_finished_after_its_client_is_killed,
    a_commit_is_finished_after_its_client_is_killed,
);

/// The crash points of phase one: whether the coordinator knows the branch there, and how many
/// guard rows its rollback leaves. A guard row marks a branch that never committed locally.
const PHASE_ONE: [(&str, bool, i64); 5] = [
    ("before-undo-insert", false, 0),
    ("before-register", false, 0),
    ("after-register", true, 1),
    ("before-local-commit", true, 1),
    ("after-local-commit", true, 0),
];

async fn a_client_killed_in_phase_one_is_undone_by_another<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let mut guards = 0;
    for (point, registered, guards_more) in PHASE_ONE {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        scene.client(Some(&xid), &CHANGES).crash_at(point).crashed().await;
        let committed = scene.bank.accounts().await != before;
        assert_eq!(committed, point == "after-local-commit", "{point}");

        let rolled_back = roll_back(global);
        if registered {
            // No process can undo the branch: the coordinator waits for an RM.
            scene.until(&xid, Status::RollingBack).await;
        }
        let rescuer = scene.rescuer().await;
        rolled_back.await.unwrap().unwrap_or_else(|error| panic!("{point}: {error}"));
        guards += guards_more;
        scene.assert_clean(&before, guards).await;
        rescuer.leave().await;
    }
}

async fn a_client_killed_with_its_tm_is_undone_after_the_timeout<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    for point in ["before-register", "after-local-commit"] {
        let killed = async |timeout| {
            let client = scene.client(None, &CHANGES).timeout(timeout);
            client.crash_with_its_global_at(point).await
        };
        let xid = before_the_timeout(killed).await;
        let rescuer = scene.rescuer().await;
        let detail =
            scene.coordinator.until(&xid, |detail| detail.transaction.status == Status::RolledBack);
        let reason = detail.await.transaction.rollback_reason;
        assert_eq!(reason, Some(RollbackReason::Timeout));
        scene.assert_clean(&before, 0).await;
        rescuer.leave().await;
    }
}

const PHASE_TWO: [&str; 2] = ["in-phase-two-before-commit", "after-phase-two-commit"];

async fn a_rollback_is_finished_after_its_client_is_killed<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    for point in PHASE_TWO {
        let global = scene.begin().await;
        let mut client = scene.client(Some(global.xid()), &CHANGES).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        let rolled_back = roll_back(global);
        client.crashed().await;
        let rescuer = scene.rescuer().await;
        rolled_back.await.unwrap().unwrap();
        scene.assert_clean(&before, 0).await;
        rescuer.leave().await;
    }
}

async fn a_commit_is_finished_after_its_client_is_killed<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    for (point, id) in PHASE_TWO.into_iter().zip([10, 11]) {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let insert = format!("INSERT INTO account (id, cents) VALUES ({id}, 5)");
        let mut client = scene.client(Some(&xid), &[&insert]).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        global.commit().await.unwrap();
        client.crashed().await;
        let status = scene.handfast.outcome(&xid).await.unwrap();
        assert_eq!(status, GlobalStatus::Committing, "{point}: no process has answered");
        let rescuer = scene.rescuer().await;
        scene.until_committed(&xid).await;
        assert_eq!(scene.bank.cents(id).await, 5);
        assert_eq!(scene.bank.undo_rows().await, (0, 0));
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}
