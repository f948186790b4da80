//! Branches that wait for an operator, and their ends.

use std::sync::atomic::Ordering;

use handfast::{TransactionError, Xid};
use handfast_server::admin::model::{BranchState, Status};

use crate::action::{LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::scene::{CANCELLED, CONFIRMED, Scene, TRIED, UNTOUCHED, debit};

on_every_database!(
    a_hopeless_cancel_is_accepted_as_it_is,
    a_hopeless_cancel_is_repeated_on_request,
    a_cancel_of_a_confirmed_branch_waits_for_an_operator,
    a_confirm_of_a_cancelled_branch_is_shown_and_repeated,
);

/// Rolls back a debit whose cancel is hopeless, and returns the branch's id.
async fn stuck<DB: LocalDatabase>(scene: &Scene<DB>) -> (Xid, String) {
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    scene.conduct.is_closed.store(true, Ordering::SeqCst);
    let end = global.rollback("test").await.unwrap_err();
    assert!(matches!(end, TransactionError::NeedsOperator { .. }), "{end:?}");
    let mut detail = scene.coordinator.show(xid.as_str()).await;
    assert_eq!(detail.transaction.status, Status::NeedsOperator);
    let branch = detail.branches.remove(0);
    assert_eq!(branch.state, BranchState::Refused);
    let failure = branch.last_failure.unwrap().error;
    assert_eq!(failure, "cancel: closed forever (HF-TCC-ACTION)");
    assert_eq!(scene.account(1).await, TRIED);
    (xid, branch.id)
}

async fn a_hopeless_cancel_is_accepted_as_it_is<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (xid, branch) = stuck(&scene).await;
    scene.coordinator.resolve(xid.as_str(), &branch, "accept_current").await;
    scene.until(&xid, Status::RolledBack).await;
    assert_eq!(scene.account(1).await, TRIED);
    assert_eq!(scene.traces(&xid).await, ["try"]);
    assert_eq!(scene.fences(&xid).await, [CANCELLED]);
}

async fn a_hopeless_cancel_is_repeated_on_request<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (xid, branch) = stuck(&scene).await;
    scene.conduct.is_closed.store(false, Ordering::SeqCst);
    scene.coordinator.resolve(xid.as_str(), &branch, "force_before").await;
    scene.until(&xid, Status::RolledBack).await;
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
}

/// Sets the state of the only fence, as a call that bypasses the coordinator would.
async fn set_fence<DB: LocalDatabase>(scene: &Scene<DB>, status: &str) {
    let sql = format!("UPDATE branch_fence SET status = {status}");
    DB::raw(&scene.pool, &sql).await.unwrap();
}

async fn a_cancel_of_a_confirmed_branch_waits_for_an_operator<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    set_fence(&scene, CONFIRMED).await;
    let end = global.rollback("test").await.unwrap_err();
    assert!(matches!(end, TransactionError::NeedsOperator { .. }), "{end:?}");
    let branch = scene.coordinator.show(xid.as_str()).await.branches.remove(0);
    let failure = branch.last_failure.unwrap().error;
    assert!(failure.ends_with("(HF-FENCE-CONTRADICTED)"), "{failure}");
    scene.coordinator.resolve(xid.as_str(), &branch.id, "accept_current").await;
    scene.until(&xid, Status::RolledBack).await;
    assert_eq!(scene.fences(&xid).await, [CONFIRMED]);
    assert_eq!(scene.account(1).await, TRIED);
}

async fn a_confirm_of_a_cancelled_branch_is_shown_and_repeated<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    set_fence(&scene, CANCELLED).await;
    global.commit().await.unwrap();
    let again = |detail: &handfast_server::admin::model::TransactionDetail| {
        detail.branches[0].attempts >= 2
    };
    let detail = scene.coordinator.until(xid.as_str(), again).await;
    assert_eq!(detail.transaction.status, Status::Committing);
    let failure = detail.branches[0].last_failure.as_ref().unwrap().error.clone();
    assert!(failure.ends_with("(HF-FENCE-CONTRADICTED)"), "{failure}");
    // 1 means tried: the fence is corrected by hand.
    set_fence(&scene, "1").await;
    scene.until_committed(&xid).await;
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
}
