//! A client dies at each named point; whoever registers its resource next finishes its branch.

use handfast::GlobalStatus;
use handfast_server::admin::model::{RollbackReason, Status};

use crate::at::{TestDatabase, on_every_database};
use crate::child::before_the_timeout;
use crate::scene::{CHANGES, Scene, roll_back};

on_every_database!(
    a_client_killed_in_phase_one_is_undone_by_another,
    a_client_killed_with_its_tm_is_undone_after_the_timeout,
    a_client_killed_in_a_rollback_leaves_it_to_another,
    a_client_killed_in_phase_two_of_a_commit_leaves_it_to_another,
);

/// The points of phase one: whether the coordinator knows of the branch there, and how many guard
/// rows its rollback leaves. A guard row is the mark of a branch that never committed locally.
const PHASE_ONE: [(&str, bool, i64); 4] = [
    ("before-undo-insert", false, 0),
    ("before-register", false, 0),
    ("after-register", true, 1),
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
            // Nobody can undo it: the coordinator waits for an RM.
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

async fn a_client_killed_in_a_rollback_leaves_it_to_another<DB: TestDatabase>() {
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

async fn a_client_killed_in_phase_two_of_a_commit_leaves_it_to_another<DB: TestDatabase>() {
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
        assert_eq!(status, GlobalStatus::Committing, "{point}: nobody has answered");
        let rescuer = scene.rescuer().await;
        scene.until_committed(&xid).await;
        assert_eq!(scene.bank.cents(id).await, 5);
        assert_eq!(scene.bank.undo_rows().await, (0, 0));
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}
