//! Another hand writes a row that a global has changed; the global is then rolled back. An operator
//! sees the row before, after and now, and ends it either way.

use handfast::TransactionError;
use handfast_server::admin::model::{BranchState, Status, TransactionDetail};

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, branch};

on_every_database!(an_operator_accepts_what_is_there, an_operator_forces_the_before_image);

async fn an_operator_accepts_what_is_there<DB: TestDatabase>() {
    resolves::<DB>("accept_current", "555").await;
}

async fn an_operator_forces_the_before_image<DB: TestDatabase>() {
    resolves::<DB>("force_before", "1000").await;
}

async fn resolves<DB: TestDatabase>(resolution: &str, cents: &str) {
    let scene = Scene::<DB>::new().await;
    let mut expected = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let changes = ["UPDATE account SET cents = cents - 10 WHERE id IN (1, 2)"];
    branch(&resource, &global, &changes).await.unwrap();
    let foreign = "UPDATE account SET cents = 555 WHERE id = 1";
    DB::raw(&scene.bank.pool, foreign).await.unwrap();
    let end = global.rollback("test").await.unwrap_err();
    assert!(matches!(end, TransactionError::NeedsOperator { .. }), "{end:?}");

    let detail = scene.coordinator.show(xid.as_str()).await;
    assert_shown(&detail);
    // Nothing was touched, not even the row that is as the branch left it.
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

fn assert_shown(detail: &TransactionDetail) {
    assert_eq!(detail.transaction.status, Status::NeedsOperator);
    assert_eq!(detail.branches[0].state, BranchState::Refused);
    let refusal = detail.branches[0].refusal.as_ref().unwrap();
    assert_eq!(refusal.rows.len(), 1, "{refusal:?}");
    let row = &refusal.rows[0];
    assert!(row.table.ends_with("account"), "{}", row.table);
    assert_eq!(row.key, "1");
    let shown = row.columns.iter().map(|column| {
        let images = [&column.before, &column.after, &column.current];
        (column.name.as_str(), images.map(|image| image.as_deref().unwrap()))
    });
    assert_eq!(shown.collect::<Vec<_>>(), [("cents", ["1000", "990", "555"])]);
}
