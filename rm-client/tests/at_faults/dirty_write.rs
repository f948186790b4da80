//! Another transaction writes a row that a global has changed, and the global is then rolled back.
//! An operator sees every row before, after and at present, and ends the rollback in one of three
//! ways, even if the process that executes the answer is killed.

use handfast::{TransactionError, Xid};
use handfast_server::admin::model::{BranchState, RowStanding, Status, TransactionDetail};

use crate::at::{TestDatabase, on_every_database};
use crate::child::PATIENCE;
use crate::scene::{Scene, branch};

on_every_database!(
    an_operator_restores_the_clean_rows,
    an_operator_accepts_the_current_rows,
    an_operator_forces_the_before_image,
    an_answer_is_finished_after_its_client_is_killed,
);

const CHANGE: &str = "UPDATE account SET cents = cents - 10 WHERE id IN (1, 2)";
const FOREIGN: &str = "UPDATE account SET cents = 555 WHERE id = 1";

async fn an_operator_restores_the_clean_rows<DB: TestDatabase>() {
    resolves::<DB>("restore_clean", "555").await;
}

async fn an_operator_accepts_the_current_rows<DB: TestDatabase>() {
    resolves::<DB>("accept_current", "555").await;
}

async fn an_operator_forces_the_before_image<DB: TestDatabase>() {
    resolves::<DB>("force_before", "1000").await;
}

async fn resolves<DB: TestDatabase>(resolution: &str, cents: &str) {
    let scene = Scene::<DB>::patient().await;
    let mut expected = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &[CHANGE]).await.unwrap();
    DB::raw(&scene.bank.pool, FOREIGN).await.unwrap();
    let end = global.rollback("test").await.unwrap_err();
    assert!(matches!(end, TransactionError::NeedsOperator { .. }), "{end:?}");

    let detail = scene.coordinator.show(xid.as_str()).await;
    assert_shown(&detail);
    // No row was changed, not even the one that is as the branch left it.
    assert_eq!((scene.bank.cents(1).await, scene.bank.cents(2).await), (555, 990));
    assert_eq!(scene.bank.undo_rows().await, (1, 0));
    assert_eq!(scene.coordinator.status().await.locks, 2);

    scene.coordinator.resolve(xid.as_str(), &detail.branches[0].id, resolution).await;
    scene.until(&xid, Status::RolledBack).await;
    expected[0][1] = Some(cents.to_owned());
    if resolution == "accept_current" {
        // The whole branch stays as it is.
        expected[1][1] = Some("990".to_owned());
    }
    scene.assert_clean(&expected, 0).await;
}

/// The answer may be applied but not reported. The next process then finds nothing to do, and must
/// not leave a guard row: it would hold a released event again.
async fn an_answer_is_finished_after_its_client_is_killed<DB: TestDatabase>() {
    for point in ["in-phase-two-before-commit", "after-phase-two-commit"] {
        for (resolution, cents) in [
            ("restore_clean", (555, 1_000)),
            ("accept_current", (555, 990)),
            ("force_before", (1_000, 1_000)),
        ] {
            let scene = Scene::<DB>::patient().await;
            let global = scene.begin().await;
            let xid = global.xid().clone();
            let mut client = scene.client(Some(&xid), &[CHANGE]).crash_at(point);
            assert_eq!(client.next_report::<String>().await, "done");
            DB::raw(&scene.bank.pool, FOREIGN).await.unwrap();
            global.rollback("test").await.unwrap_err();
            let detail = scene.coordinator.show(xid.as_str()).await;
            scene.coordinator.resolve(xid.as_str(), &detail.branches[0].id, resolution).await;
            client.crashed().await;
            let rescuer = scene.rescuer().await;
            answer_until_over(&scene, &xid, &detail.branches[0].id, resolution).await;
            assert_eq!((scene.bank.cents(1).await, scene.bank.cents(2).await), cents, "{point}");
            assert_eq!(scene.bank.undo_rows().await, (0, 0), "{point} {resolution}");
            rescuer.leave().await;
        }
    }
}

/// On a slow machine the refusal of a call from before the answer may arrive after it. Then the
/// operator is asked again.
async fn answer_until_over<DB: TestDatabase>(
    scene: &Scene<DB>,
    xid: &Xid,
    branch: &str,
    resolution: &str,
) {
    let over = async {
        loop {
            match scene.coordinator.show(xid.as_str()).await.transaction.status {
                Status::RolledBack => return,
                Status::NeedsOperator => {
                    scene.coordinator.resolve(xid.as_str(), branch, resolution).await;
                }
                Status::Active | Status::Committing | Status::Committed | Status::RollingBack => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("the global is rolled back");
}

fn assert_shown(detail: &TransactionDetail) {
    assert_eq!(detail.transaction.status, Status::NeedsOperator);
    assert_eq!(detail.branches[0].state, BranchState::Refused);
    let refusal = detail.branches[0].refusal.as_ref().unwrap();
    let standings: Vec<RowStanding> = refusal.rows.iter().map(|row| row.standing).collect();
    assert_eq!(standings, [RowStanding::Dirty, RowStanding::Clean], "{refusal:?}");
    assert_eq!((refusal.rows_total, refusal.rows_dirty), (2, 1));
    let row = &refusal.rows[0];
    assert!(row.table.ends_with("account"), "{}", row.table);
    assert_eq!(row.key, "1");
    let shown = row.columns.iter().map(|column| {
        let images = [&column.before, &column.after, &column.current];
        (column.name.as_str(), images.map(|image| image.as_deref().unwrap()))
    });
    assert_eq!(shown.collect::<Vec<_>>(), [("cents", ["1000", "990", "555"])]);
}
