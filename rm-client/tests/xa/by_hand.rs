//! A prepared branch is ended by hand, against the later decision.
//!
//! PostgreSQL remembers how a transaction ended, so the contradiction is detected there. MySQL does
//! not.

use std::time::Duration;

use handfast_server::admin::model::Status;
use handfast_test_services::until;
use sqlx::{MySql, Postgres};

use crate::at::TestDatabase;
use crate::database::{Name, XaTestDatabase};
use crate::scene::{DEBIT, Scene, branch};

/// Ends the only prepared branch by hand.
async fn end_by_hand(scene: &Scene<Postgres>, verb: &str) {
    let name = scene.prepared().await.remove(0);
    Postgres::raw(&scene.bank.pool, &format!("{verb} PREPARED '{name}'")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_commit_of_a_rolled_back_branch_is_detected() {
    let scene = Scene::<Postgres>::patient().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, DEBIT).await.unwrap();
    end_by_hand(&scene, "COMMIT").await;
    global.rollback("test").await.unwrap_err();
    let detail = scene
        .coordinator
        .until(xid.as_str(), |detail| detail.transaction.status == Status::NeedsOperator);
    let detail = detail.await;
    let said = detail.branches[0].last_failure.as_ref().expect("a failure is shown");
    assert!(format!("{said:?}").contains("committed by another program"), "{said:?}");
    scene.coordinator.resolve(xid.as_str(), &detail.branches[0].id, "accept_current").await;
    scene.until_rolled_back(&xid).await;
    scene.assert_clean([990, 1000]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_rollback_of_a_committed_branch_stays_shown() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, DEBIT).await.unwrap();
    end_by_hand(&scene, "ROLLBACK").await;
    global.commit().await.unwrap();
    let detail = scene.coordinator.until(xid.as_str(), |detail| detail.branches[0].attempts >= 3);
    let detail = detail.await;
    assert_eq!(detail.transaction.status, Status::Committing);
    let said = format!("{:?}", detail.branches[0].last_failure);
    assert!(said.contains("rolled back by another program"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_does_not_detect_a_manual_end() {
    let scene = Scene::<MySql>::new().await;
    let resource = scene.handfast.xa(scene.bank.pool.clone()).node(&scene.node);
    let resource = resource.hold_limit(Duration::ZERO).await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, DEBIT).await.unwrap();
    let name = Name::Ours(scene.prepared().await.remove(0));
    // Other sessions can end the branch once the server has ended its own session, so try until
    // then.
    let by_hand = async || MySql::roll_back_past(&scene.bank.pool, &name).await.is_ok();
    until("the session ends", by_hand).await;
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([1000, 1000]).await;
}
