//! The connection breaks when a PREPARE or a decision passes.

use handfast::{EndError, RollbackCause, TransactionError};

use crate::commit_wire::{CommitWire, Fault};
use crate::database::{XaTestDatabase, on_both};
use crate::scene::{DEBIT, Scene, branch, code};

on_both!(
    a_lost_prepare_only_rolls_back,
    a_lost_answer_to_prepare_only_rolls_back,
    phase_two_waits_for_an_unreachable_database,
);

async fn a_lost_prepare_only_rolls_back<DB: XaTestDatabase>() {
    an_unknown_prepare_only_rolls_back::<DB>(Fault::LoseCommit).await;
}

async fn a_lost_answer_to_prepare_only_rolls_back<DB: XaTestDatabase>() {
    an_unknown_prepare_only_rolls_back::<DB>(Fault::LoseAnswer).await;
}

async fn an_unknown_prepare_only_rolls_back<DB: XaTestDatabase>(fault: Fault) {
    let scene = Scene::<DB>::new().await;
    let (wire, url) = CommitWire::breaking_at(&scene.bank.pool, DB::PREPARE).await;
    let resource = scene.handfast.xa(DB::open(url).await).node(&scene.node).await.unwrap();
    let global = scene.begin().await;
    wire.set(fault);
    let error = branch(&resource, &global, DEBIT).await.unwrap_err();
    assert!(wire.has_broken(), "PREPARE has passed the wire");
    assert_eq!(code(&error), "HF-XA-PREPARE-UNKNOWN");
    // An application that ignores the error cannot commit.
    let xid = global.xid().clone();
    let error = global.commit().await.unwrap_err();
    assert!(is_branch_unknown(&error), "{error:?}");
    scene.until_rolled_back(&xid).await;
    scene.assert_clean([1000, 1000]).await;
}

fn is_branch_unknown(error: &EndError) -> bool {
    matches!(error, TransactionError::RolledBack { by: RollbackCause::BranchUnknown, .. })
}

async fn phase_two_waits_for_an_unreachable_database<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (wire, url) = CommitWire::breaking_at(&scene.bank.pool, DB::PREPARE).await;
    let resource = scene.handfast.xa(DB::open(url).await).node(&scene.node).await.unwrap();
    let global = scene.begin().await;
    branch(&resource, &global, DEBIT).await.unwrap();
    wire.set(Fault::Down);
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    let asked = scene.coordinator.until(xid.as_str(), |detail| {
        detail.branches.first().is_some_and(|branch| branch.attempts >= 2)
    });
    assert!(asked.await.branches[0].last_failure.is_some());
    wire.set(Fault::None);
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
}
