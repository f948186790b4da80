//! Statements outside of any global, on a resource that takes part in globals: a spawned task
//! has lost its global in silence, and is warned of.

use super::warnings::Warnings;
use crate::at::{Stage, TestDatabase, on_every_database};

on_every_database!(a_write_that_has_lost_its_global_is_warned_of_once);

async fn a_write_that_has_lost_its_global_is_warned_of_once<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, n INTEGER)",
        "INSERT INTO item VALUES (1, 1)",
    ])
    .await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let seen = || warnings.seen();
    let write = "UPDATE item SET n = n + 1";
    DB::run_alone(&stage.resource, write).await.unwrap();
    assert_eq!(seen(), 0, "the resource has never been used in a global");
    let global = stage.begin().await;
    global.scope(DB::run_alone(&stage.resource, write)).await.unwrap();
    stage.commit(global).await;
    DB::run_alone(&stage.resource, "SELECT n FROM item").await.unwrap();
    assert_eq!(seen(), 0, "a read is no loss");
    let mut local = stage.resource.begin().await.unwrap();
    DB::run(&mut local, write).await.unwrap();
    assert_eq!(seen(), 1);
    local.commit().await.unwrap();
    DB::run_alone(&stage.resource, write).await.unwrap();
    assert_eq!(seen(), 1, "once is enough");
}
