//! What waits for a person, and how a person ends it.

use std::sync::atomic::Ordering;

use handfast::{TransactionError, Xid};
use handfast_server::admin::model::{BranchState, Status};

use crate::action::{LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::scene::{CANCELLED, CONFIRMED, Scene, TRIED, UNTOUCHED, debit};

on_every_database!(
    a_hopeless_cancel_is_accepted_as_it_is,
    a_hopeless_cancel_is_called_again_when_asked_to,
    a_cancel_of_what_was_confirmed_waits_for_an_operator,
    a_confirm_of_what_was_cancelled_is_shown_and_goes_on,
);

/// Rolls back a debit whose cancel is hopeless, and gives the branch's id.
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
    assert_eq!(failure, "cancel: closed for ever (HF-TCC-ACTION)");
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

async fn a_hopeless_cancel_is_called_again_when_asked_to<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (xid, branch) = stuck(&scene).await;
    scene.conduct.is_closed.store(false, Ordering::SeqCst);
    scene.coordinator.resolve(xid.as_str(), &branch, "force_before").await;
    scene.until(&xid, Status::RolledBack).await;
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
}

/// Sets the only fence, as somebody who calls past the coordinator would.
async fn meddle<DB: LocalDatabase>(scene: &Scene<DB>, status: &str) {
    let sql = format!("UPDATE branch_fence SET status = {status}");
    DB::raw(&scene.pool, &sql).await.unwrap();
}

async fn a_cancel_of_what_was_confirmed_waits_for_an_operator<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    meddle(&scene, CONFIRMED).await;
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

async fn a_confirm_of_what_was_cancelled_is_shown_and_goes_on<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    meddle(&scene, CANCELLED).await;
    global.commit().await.unwrap();
    let again = |detail: &handfast_server::admin::model::TransactionDetail| {
        detail.branches[0].attempts >= 2
    };
    let detail = scene.coordinator.until(xid.as_str(), again).await;
    assert_eq!(detail.transaction.status, Status::Committing);
    let failure = detail.branches[0].last_failure.as_ref().unwrap().error.clone();
    assert!(failure.ends_with("(HF-FENCE-CONTRADICTED)"), "{failure}");
    // 1: tried, put right by hand.
    meddle(&scene, "1").await;
    scene.until_committed(&xid).await;
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
}
