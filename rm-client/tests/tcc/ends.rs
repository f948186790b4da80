//! The ends of branches when no process dies.

use handfast::{GlobalStatus, TransactionError};
use handfast_server::admin::model::{RollbackReason, Status, TransactionDetail};
use handfast_test_services::until;
use std::sync::atomic::Ordering;

use crate::action::{Amount, Debit, HastyDebit, LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::child::before_the_timeout;
use crate::scene::{CANCELLED, CONFIRMED, DEBITED, Scene, TRIED, UNTOUCHED, debit, roll_back};

on_every_database!(
    a_commit_confirms,
    a_rollback_cancels,
    a_timeout_cancels,
    a_failed_try_leaves_no_branch,
    a_dropped_try_makes_the_global_roll_back,
    a_failed_confirm_is_called_again,
    a_failed_cancel_is_called_again,
    a_panicking_action_is_called_again,
    a_hanging_confirm_is_cut_off_and_called_again,
    two_branches_of_one_global_are_two_actions,
);

async fn a_commit_confirms<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    assert_eq!(scene.account(1).await, TRIED);
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, DEBITED);
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
    assert_eq!(scene.fences(&xid).await, [CONFIRMED]);
    scene.assert_finished().await;
}

async fn a_rollback_cancels<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    global.rollback("test").await.unwrap();
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
    assert_eq!(scene.fences(&xid).await, [CANCELLED]);
    scene.assert_finished().await;
}

async fn a_timeout_cancels<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = before_the_timeout(async |timeout| {
        let global = scene.handfast.transaction("test").timeout(timeout);
        let global = global.begin().await.unwrap();
        debit(&resource, &global, &ten_from(1)).await.is_ok().then_some(global)
    });
    let global = global.await;
    let detail = scene.until(global.xid(), Status::RolledBack).await;
    assert_eq!(detail.transaction.rollback_reason, Some(RollbackReason::Timeout));
    assert_eq!(scene.account(1).await, UNTOUCHED);
    let late = debit(&resource, &global, &ten_from(2)).await.unwrap_err();
    assert_eq!(late.code(), "HF-TC-ALREADY-DECIDED");
    let end = global.commit().await.unwrap_err();
    assert!(matches!(end, TransactionError::RolledBack { .. }), "{end:?}");
    assert_eq!(scene.account(2).await, UNTOUCHED);
    scene.assert_finished().await;
}

async fn a_failed_try_leaves_no_branch<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let too_much = Amount { cents: 1_001, ..ten_from(1) };
    let error = debit(&resource, &global, &too_much).await.unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), TOO_LITTLE);
    debit(&resource, &global, &ten_from(2)).await.unwrap();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.account(2).await, DEBITED);
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
    assert_eq!(scene.coordinator.show(xid.as_str()).await.branches.len(), 1);
}

const TOO_LITTLE: (&str, &str) = ("HF-TCC-ACTION", "account 1 holds too little");

// A branch whose try was cut off would wait forever for its confirm, which finds no try.
async fn a_dropped_try_makes_the_global_roll_back<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    scene.conduct.shut();
    let amount = ten_from(1);
    let trying = debit(&resource, &global, &amount);
    let entered = until("the try begins", async || scene.conduct.called() == ["try"]);
    tokio::select! {
        tried = Box::pin(trying) => panic!("{tried:?}"),
        () = entered => {}
    }
    scene.conduct.open();
    let end = global.commit().await.unwrap_err();
    assert!(matches!(end, TransactionError::RolledBack { .. }), "{end:?}");
    let status = scene.handfast.outcome(&xid).await.unwrap();
    assert_eq!(status, GlobalStatus::RolledBack(handfast::RollbackReason::BranchUnknown));
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, [""; 0]);
    scene.assert_finished().await;
}

async fn a_failed_confirm_is_called_again<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    scene.conduct.failing.store(3, Ordering::SeqCst);
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, DEBITED);
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
    assert_eq!(scene.conduct.called(), ["try", "confirm", "confirm", "confirm", "confirm"]);
    let branch = scene.coordinator.show(xid.as_str()).await.branches.remove(0);
    assert_eq!(branch.attempts, 3);
}

async fn a_failed_cancel_is_called_again<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    scene.conduct.failing.store(3, Ordering::SeqCst);
    roll_back(global).await.unwrap().unwrap();
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
    assert_eq!(scene.conduct.called(), ["try", "cancel", "cancel", "cancel", "cancel"]);
}

async fn a_panicking_action_is_called_again<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    debit(&resource, &global, &ten_from(2)).await.unwrap();
    scene.conduct.panicking.store(2, Ordering::SeqCst);
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!([scene.account(1).await, scene.account(2).await], [DEBITED, DEBITED]);
    assert_eq!(scene.traces(&xid).await, ["confirm", "confirm", "try", "try"]);
    assert_eq!(scene.conduct.called().len(), 6);
}

async fn a_hanging_confirm_is_cut_off_and_called_again<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let hasty = HastyDebit(Debit::new(&scene.conduct));
    let resource = scene.handfast.tcc("hasty-debit", scene.pool.clone(), hasty).await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let amount = ten_from(1);
    Box::pin(global.scope(resource.try_(&amount))).await.unwrap();
    scene.conduct.shut();
    global.commit().await.unwrap();
    let cut_off = |detail: &TransactionDetail| detail.branches[0].attempts >= 2;
    let detail = scene.coordinator.until(xid.as_str(), cut_off).await;
    let failure = detail.branches[0].last_failure.as_ref().unwrap();
    assert_eq!(failure.error, "confirm: took longer than 200ms");
    assert_eq!(scene.account(1).await, TRIED);
    scene.conduct.open();
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, DEBITED);
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
}

async fn two_branches_of_one_global_are_two_actions<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    for (commits, left) in [(false, UNTOUCHED), (true, [980, 0])] {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        debit(&resource, &global, &ten_from(1)).await.unwrap();
        debit(&resource, &global, &ten_from(1)).await.unwrap();
        assert_eq!(scene.account(1).await, [980, 20]);
        if commits {
            global.commit().await.unwrap();
            scene.until_committed(&xid).await;
        } else {
            global.rollback("test").await.unwrap();
        }
        assert_eq!(scene.account(1).await, left);
    }
}
