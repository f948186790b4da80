//! Inputs of actions, and errors that are reported before the action runs.

use handfast::fence::FenceError;
use sqlx::Sqlite;

use crate::action::{Amount, DEBIT, Debit, LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::scene::{DEBITED, Scene, UNTOUCHED, debit};

on_every_database!(an_input_up_to_the_limit_is_passed_on, a_database_without_the_table_is_refused,);

/// The largest input, as JSON.
const BYTES_MAX: usize = 64 << 10;

fn of_bytes(bytes: usize) -> Amount {
    let amount = ten_from(1);
    let note = "n".repeat(bytes - serde_json::to_string(&amount).unwrap().len());
    Amount { note, ..amount }
}

async fn an_input_up_to_the_limit_is_passed_on<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let error = debit(&resource, &global, &of_bytes(BYTES_MAX + 1)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TCC-INPUT-TOO-LARGE");
    assert_eq!(error.to_string(), "input of debit takes 65537 bytes: at most 65536");
    assert_eq!(scene.account(1).await, UNTOUCHED);
    debit(&resource, &global, &of_bytes(BYTES_MAX)).await.unwrap();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, DEBITED);
    assert_eq!(scene.conduct.called(), ["try", "confirm"]);
}

async fn a_database_without_the_table_is_refused<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (pool, _directory) = DB::create().await;
    let debit = Debit::<DB>::new(&scene.conduct);
    let error = scene.handfast.tcc(DEBIT, pool, debit).await.unwrap_err();
    assert_eq!(error.code(), "HF-FENCE-TABLE-MISSING");
}

#[tokio::test]
async fn a_try_outside_a_global_is_refused() {
    let scene = Scene::<Sqlite>::new().await;
    let resource = scene.resource().await;
    let error = resource.try_(&ten_from(1)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-TRANSACTION-REQUIRED");
    assert_eq!(scene.conduct.called(), [""; 0]);
}

#[tokio::test]
async fn a_name_that_the_fence_cannot_keep_is_refused() {
    let scene = Scene::<Sqlite>::new().await;
    for name in [String::new(), "a".repeat(129)] {
        let debit = Debit::<Sqlite>::new(&scene.conduct);
        let error = scene.handfast.tcc(name, scene.pool.clone(), debit).await.unwrap_err();
        assert!(matches!(error, FenceError::Name { .. }), "{error:?}");
    }
}
