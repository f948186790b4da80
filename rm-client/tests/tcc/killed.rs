//! A client dies at each crash point. The next process that registers its action finishes its
//! branch.

use handfast::GlobalStatus;
use handfast_server::admin::model::{RollbackReason, Status};

use crate::action::LocalDatabase;
use crate::at::on_every_database;
use crate::child::before_the_timeout;
use crate::scene::{BARRED, CANCELLED, CONFIRMED, DEBITED, Scene, TRIED, UNTOUCHED, roll_back};

on_every_database!(
    a_client_killed_in_phase_one_is_cancelled_by_another,
    a_client_killed_with_its_tm_is_cancelled_after_the_timeout,
    a_cancel_is_finished_after_its_client_is_killed,
    a_confirm_is_finished_after_its_client_is_killed,
);

/// The crash points of phase one, the account's state there, and the fence's state after the
/// cancel.
const PHASE_ONE: [(&str, [i64; 2], &str); 3] = [
    ("tcc-after-register", UNTOUCHED, BARRED),
    ("tcc-in-try", UNTOUCHED, BARRED),
    ("tcc-after-try", TRIED, CANCELLED),
];

async fn a_client_killed_in_phase_one_is_cancelled_by_another<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    for (point, left, fence) in PHASE_ONE {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        scene.client(Some(&xid), 1).crash_at(point).crashed().await;
        assert_eq!(scene.account(1).await, left, "{point}");
        let rolled_back = roll_back(global);
        // No process can cancel the branch: the coordinator waits for one.
        scene.until(&xid, Status::RollingBack).await;
        let rescuer = scene.rescuer().await;
        rolled_back.await.unwrap().unwrap_or_else(|error| panic!("{point}: {error}"));
        assert_eq!(scene.account(1).await, UNTOUCHED, "{point}");
        assert_eq!(scene.fences(&xid).await, [fence], "{point}");
        // A branch that was never tried is not cancelled either.
        assert_eq!(rescuer.conduct.called().len(), usize::from(left == TRIED), "{point}");
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}

async fn a_client_killed_with_its_tm_is_cancelled_after_the_timeout<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    for point in ["tcc-in-try", "tcc-after-try"] {
        let killed = async |timeout| {
            scene.client(None, 1).timeout(timeout).crash_with_its_global_at(point).await
        };
        let xid = before_the_timeout(killed).await.parse().unwrap();
        let rescuer = scene.rescuer().await;
        let detail = scene.until(&xid, Status::RolledBack).await;
        assert_eq!(detail.transaction.rollback_reason, Some(RollbackReason::Timeout));
        assert_eq!(scene.account(1).await, UNTOUCHED, "{point}");
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}

const PHASE_TWO: [&str; 2] = ["tcc-in-phase-two", "tcc-after-phase-two"];

async fn a_cancel_is_finished_after_its_client_is_killed<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    for point in PHASE_TWO {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let mut client = scene.client(Some(&xid), 1).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        let rolled_back = roll_back(global);
        client.crashed().await;
        let rescuer = scene.rescuer().await;
        rolled_back.await.unwrap().unwrap();
        assert_eq!(scene.account(1).await, UNTOUCHED, "{point}");
        assert_eq!(scene.traces(&xid).await, ["cancel", "try"], "{point}");
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}

async fn a_confirm_is_finished_after_its_client_is_killed<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    for (point, account) in PHASE_TWO.into_iter().zip([1, 2]) {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let mut client = scene.client(Some(&xid), account).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        global.commit().await.unwrap();
        client.crashed().await;
        let status = scene.handfast.outcome(&xid).await.unwrap();
        assert_eq!(status, GlobalStatus::Committing, "{point}: no process has answered");
        let rescuer = scene.rescuer().await;
        scene.until_committed(&xid).await;
        assert_eq!(scene.account(account).await, DEBITED, "{point}");
        assert_eq!(scene.traces(&xid).await, ["confirm", "try"], "{point}");
        assert_eq!(scene.fences(&xid).await, [CONFIRMED], "{point}");
        // The crash after the confirm makes the coordinator call it again. The second confirm finds
        // it done.
        let called = rescuer.conduct.called().len();
        assert_eq!(called, usize::from(point == "tcc-in-phase-two"), "{point}");
        scene.assert_finished().await;
        rescuer.leave().await;
    }
}
