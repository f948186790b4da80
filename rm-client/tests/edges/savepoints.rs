//! Savepoints and cut-off statements: every committed change has its undo.

use futures::FutureExt;
use handfast::AtTransaction;

use crate::at::{Stage, TestDatabase, code, on_every_database};

const ITEM: &[&str] = &[
    "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    "INSERT INTO item VALUES (1, 10)",
];

on_every_database!(
    savepoint_names_are_case_sensitive,
    the_newest_savepoint_of_a_name_counts,
    savepoints_come_as_text,
    a_savepoint_needs_a_local_transaction,
);

/// Not on SQLite, where two transactions never write at the same time, so none can wait for
/// another.
mod cut_off {
    use sqlx::{MySql, Postgres};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_not_committed() {
        super::a_cut_off_statement_is_not_committed::<Postgres>().await;
        super::a_cut_off_statement_is_not_committed::<MySql>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_not_healed_by_a_later_savepoint() {
        super::a_later_savepoint_does_not_heal_a_cut_off_statement::<Postgres>().await;
        super::a_later_savepoint_does_not_heal_a_cut_off_statement::<MySql>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_healed_by_an_earlier_savepoint() {
        super::an_earlier_savepoint_heals_a_cut_off_statement::<Postgres>().await;
        super::an_earlier_savepoint_heals_a_cut_off_statement::<MySql>().await;
    }
}

/// MySQL and SQLite take `A` and `a` for the same savepoint: rolling back to the older of the two
/// kept the newer one's rows in the database and dropped their undo.
async fn savepoint_names_are_case_sensitive<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let before = stage.dump("item", &["id", "n"]).await;
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            local.savepoint("A").await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            local.savepoint("a").await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 12 WHERE id = 1").await.unwrap();
            local.rollback_to("A").await.unwrap();
            local.commit().await.unwrap();
        })
        .await;
    assert_eq!(stage.dump("item", &["id", "n"]).await, before, "all is after savepoint A");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", &["id", "n"]).await, before);
}

async fn the_newest_savepoint_of_a_name_counts<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            local.savepoint("s").await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            local.savepoint("s").await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 12 WHERE id = 1").await.unwrap();
            local.rollback_to("s").await.unwrap();
            assert_eq!(n(&mut local).await.as_deref(), Some("11"));
            local.release_savepoint("s").await.unwrap();
            local.rollback_to("s").await.unwrap();
            assert_eq!(n(&mut local).await.as_deref(), Some("10"));
            local.commit().await.unwrap();
        })
        .await;
    assert_eq!(stage.undo_rows().await, 0);
    stage.roll_back(global).await;
}

async fn savepoints_come_as_text<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let before = stage.dump("item", &["id", "n"]).await;
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            DB::run(&mut local, "SAVEPOINT Further").await.unwrap();
            DB::run(&mut local, "INSERT INTO item VALUES (2, 20)").await.unwrap();
            DB::run(&mut local, "SAVEPOINT inner_one").await.unwrap();
            DB::run(&mut local, "ROLLBACK TO SAVEPOINT further").await.unwrap();
            let gone = DB::run(&mut local, "ROLLBACK TO inner_one").await;
            assert_eq!(code(&gone.unwrap_err()), "HF-AT-SAVEPOINT");
            DB::run(&mut local, "UPDATE item SET n = 12 WHERE id = 1").await.unwrap();
            DB::run(&mut local, "RELEASE SAVEPOINT FURTHER").await.unwrap();
            let gone = DB::run(&mut local, "ROLLBACK TO further").await;
            assert_eq!(code(&gone.unwrap_err()), "HF-AT-SAVEPOINT");
            local.commit().await.unwrap();
        })
        .await;
    let row = vec![Some("1".to_owned()), Some("12".to_owned())];
    assert_eq!(stage.dump("item", &["id", "n"]).await, [row]);
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", &["id", "n"]).await, before);
}

async fn a_savepoint_needs_a_local_transaction<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let global = stage.begin().await;
    let alone = global.scope(DB::run_alone(&stage.resource, "SAVEPOINT further")).await;
    assert_eq!(code(&alone.unwrap_err()), "HF-AT-TRANSACTION-CONTROL");
    stage.roll_back(global).await;
}

async fn n<DB: TestDatabase>(local: &mut AtTransaction<'static, DB>) -> Option<String> {
    let sql = format!("SELECT CAST(n AS {}) FROM item WHERE id = 1", DB::TEXT);
    DB::read(local, &sql).await.unwrap().remove(0).remove(0)
}

/// Sends an INSERT that has to wait for another transaction, and drops its future while it waits.
///
/// `other` is a local transaction outside the global.
async fn cut_off<DB: TestDatabase>(
    mut other: AtTransaction<'static, DB>,
    local: &mut AtTransaction<'static, DB>,
) {
    let insert = "INSERT INTO item (id, n) VALUES (2, 20)";
    DB::run(&mut other, insert).await.unwrap();
    // Loads the table, so that the INSERT's first step is the INSERT itself.
    DB::run(local, "UPDATE item SET n = n WHERE id = 999").await.unwrap();
    assert!(DB::run(local, insert).now_or_never().is_none(), "it waits for the other one");
    other.rollback().await.unwrap();
}

const HALF_RECORDED: &str = "HF-AT-HALF-RECORDED";

async fn a_cut_off_statement_is_not_committed<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let other = stage.resource.begin().await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            cut_off(other, &mut local).await;
            let later = DB::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await;
            assert_eq!(code(&later.unwrap_err()), HALF_RECORDED);
            assert_eq!(code(&local.commit().await.unwrap_err()), HALF_RECORDED);
        })
        .await;
    stage.roll_back(global).await;
}

/// The change precedes the savepoint, so rolling back to the savepoint does not undo the change.
async fn a_later_savepoint_does_not_heal_a_cut_off_statement<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let other = stage.resource.begin().await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            cut_off(other, &mut local).await;
            local.savepoint("s").await.unwrap();
            local.rollback_to("s").await.unwrap();
            assert_eq!(code(&local.commit().await.unwrap_err()), HALF_RECORDED);
        })
        .await;
    stage.roll_back(global).await;
}

async fn an_earlier_savepoint_heals_a_cut_off_statement<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let before = stage.dump("item", &["id", "n"]).await;
    let other = stage.resource.begin().await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            DB::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            local.savepoint("s").await.unwrap();
            cut_off(other, &mut local).await;
            local.rollback_to("s").await.unwrap();
            local.commit().await.unwrap();
        })
        .await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", &["id", "n"]).await, before);
}
