//! MariaDB and SQLite: calls that merge the begin, the change and the commit.

use std::time::Duration;

use sqlx::Sqlite;
use sqlx::mysql::{MySql, MySqlPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;

use crate::at::{Stage, TestDatabase, code};

const ITEM: &[&str] = &[
    "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL UNIQUE)",
    "INSERT INTO item VALUES (1, 10), (2, 20)",
];
const COLUMNS: &[&str] = &["id", "n"];

/// The call that was to begin the local transaction fails, with the second text even before the
/// BEGIN, since MariaDB cannot parse it. The next call has to begin the transaction, or it would
/// autocommit.
#[tokio::test]
async fn a_failed_first_call_does_not_lead_to_autocommit() {
    let stage = Stage::<MySql>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    for fails in ["UPDATE item SET n = 20 WHERE id = 1", "UPDATE item SET n = 1 WHERE n ILIKE '1'"]
    {
        let global = stage.begin().await;
        global
            .scope(async {
                let mut local = stage.resource.begin().await.unwrap();
                MySql::run(&mut local, fails).await.unwrap_err();
                MySql::run(&mut local, "UPDATE item SET n = 30 WHERE id = 2").await.unwrap();
                local.rollback().await.unwrap();
            })
            .await;
        assert_eq!(stage.dump("item", COLUMNS).await, before, "{fails}");
        stage.roll_back(global).await;
    }
}

/// Another writer has kept BEGIN from being carried out, so that there is nothing to roll back.
#[tokio::test]
async fn a_local_transaction_of_sqlite_begins_anew_after_a_begin_that_failed() {
    let stage = Stage::<Sqlite>::new(ITEM).await;
    let options = (*stage.pool.connect_options()).clone().busy_timeout(Duration::from_millis(20));
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let resource = stage.handfast.at(pool).await.unwrap();
    let writer = stage.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let global = stage.begin().await;
    let changes = async {
        let mut local = resource.begin().await.unwrap();
        let change = "UPDATE item SET n = n + 1 WHERE id = 1";
        let busy = Sqlite::run(&mut local, change).await.unwrap_err();
        assert_eq!(busy.as_database_error().and_then(|it| it.code()).as_deref(), Some("5"));
        writer.rollback().await.unwrap();
        assert_eq!(Sqlite::run(&mut local, change).await.unwrap(), 1);
        local.commit().await.unwrap();
    };
    global.scope(changes).await;
    assert_eq!(stage.dump("item", COLUMNS).await[0][1].as_deref(), Some("11"));
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await[0][1].as_deref(), Some("10"));
}

/// A savepoint, the change and the release are one call: what a failed one has changed of several
/// rows is taken back, and the local transaction goes on.
#[tokio::test]
async fn a_change_of_sqlite_that_fails_half_way_is_taken_back() {
    let stage = Stage::<Sqlite>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    let changes = async {
        let mut local = stage.resource.begin().await.unwrap();
        // The second row meets the first one.
        let meets = "UPDATE item SET n = 30";
        Sqlite::run(&mut local, meets).await.unwrap_err();
        // A semicolon keeps the statement by itself.
        let meets = "UPDATE item SET n = length('thirty;') + 23";
        Sqlite::run(&mut local, meets).await.unwrap_err();
        Sqlite::run(&mut local, "INSERT INTO item VALUES (3, 30)").await.unwrap();
        local.commit().await.unwrap();
    };
    global.scope(changes).await;
    let between = stage.dump("item", COLUMNS).await;
    assert_eq!((&between[..2], between.len()), (&before[..], 3));
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// The row shows that the change failed, and not the read after it.
#[tokio::test]
async fn a_change_that_failed_leaves_the_local_transaction_usable() {
    let stage = Stage::<MySql>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            MySql::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            let taken = MySql::run(&mut local, "UPDATE item SET n = 20 WHERE id = 1").await;
            taken.unwrap_err();
            MySql::run(&mut local, "UPDATE item SET n = 21 WHERE id = 2").await.unwrap();
            local.commit().await.unwrap();
        })
        .await;
    let between = stage.dump("item", COLUMNS).await;
    assert_eq!(
        between.iter().map(|row| row[1].as_deref()).collect::<Vec<_>>(),
        [Some("11"), Some("21")]
    );
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// The driver does not know that a statement has begun a transaction.
#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_before_reuse() {
    let stage = Stage::<MySql>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    let options = stage.pool.connect_options();
    let pool = MySqlPoolOptions::new().max_connections(1).connect_with((*options).clone());
    let resource = stage.handfast.at(pool.await.unwrap()).await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = resource.begin().await.unwrap();
            MySql::run(&mut local, "UPDATE item SET n = 30 WHERE id = 2").await.unwrap();
            drop(local);
            // On the same connection, whose COMMIT would include the open transaction.
            MySql::run_alone(&resource, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
        })
        .await;
    assert_eq!(stage.value("SELECT n FROM item WHERE id = 2").await.as_deref(), Some("20"));
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// A text that cannot be merged with others is sent alone, and its answer is returned to the
/// application.
#[tokio::test]
async fn a_generated_key_is_reported() {
    let stage = Stage::<MySql>::new(ITEM).await;
    let global = stage.begin().await;
    let reported = global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            let sql = "UPDATE item SET n = LAST_INSERT_ID(n + 1) WHERE id = 1;";
            let result = sqlx::query(sql).execute(&mut local).await.unwrap();
            local.commit().await.unwrap();
            (result.rows_affected(), result.last_insert_id())
        })
        .await;
    assert_eq!(reported, (1, 11));
    stage.roll_back(global).await;
}

/// The guard row of a global that was rolled back conflicts with the undo row in the call that
/// commits.
#[tokio::test]
async fn a_guard_row_keeps_the_last_call_from_committing() {
    let stage = Stage::<MySql>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let refused = global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            MySql::run(&mut local, "UPDATE item SET n = 11 WHERE id = 1").await.unwrap();
            // The test does not know the branch's id, so the trigger gives every undo row the
            // guard's.
            let bar = format!(
                "CREATE TRIGGER bar BEFORE INSERT ON undo_log FOR EACH ROW \
                 SET NEW.xid = '{xid}', NEW.branch_id = 1"
            );
            MySql::raw(&stage.pool, &bar).await.unwrap();
            let guard = format!(
                "INSERT INTO undo_log (branch_id, xid, context, rollback_info, log_status) \
                 VALUES (1, '{xid}', '', '', 1)"
            );
            MySql::raw(&stage.pool, &guard).await.unwrap();
            local.commit().await.unwrap_err()
        })
        .await;
    assert_eq!(code(&refused), "HF-AT-GLOBAL-FINISHED");
    assert_eq!(stage.dump("item", COLUMNS).await, before);
    // No lock on the row remains.
    MySql::raw(&stage.pool, "UPDATE item SET n = 12 WHERE id = 1").await.unwrap();
    stage.roll_back(global).await;
}
