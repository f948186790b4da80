//! Several statements in one text.

use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    each_statement_is_imaged,
    what_cannot_be_undone_refuses_all,
    a_failed_statement_ends_the_text,
);

const ITEM: &[&str] = &[
    "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, n INT)",
    "INSERT INTO item VALUES (1, 10), (2, 20), (3, 30)",
];
const COLUMNS: &[&str] = &["id", "n"];

async fn each_statement_is_imaged<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    for sql in [
        "INSERT INTO item VALUES (4, 40); UPDATE item SET n = n + 1; DELETE FROM item WHERE id = 2",
        "UPDATE item SET n = 5 WHERE id = 1;\n-- a comment; no statement\n;\n\
         UPDATE item SET n = 6 WHERE id = 1;",
        "SELECT 1; DELETE FROM item",
        "UPDATE item SET n = 1; SAVEPOINT s; DELETE FROM item; ROLLBACK TO SAVEPOINT s; \
         UPDATE item SET n = 7 WHERE id = 3",
    ] {
        stage.check_undone("item", COLUMNS, &[sql]).await;
        // As a branch of its own it is one local transaction.
        let before = stage.dump("item", COLUMNS).await;
        let global = stage.begin().await;
        global.scope(DB::run_alone(&stage.resource, sql)).await.unwrap();
        assert_eq!(stage.undo_rows().await, 1, "{sql}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("item", COLUMNS).await, before, "{sql}");
    }
    let global = stage.begin().await;
    let sql = "UPDATE item SET n = 1; DELETE FROM item WHERE id < 3; SELECT id FROM item";
    let changed = global.scope(DB::run_alone(&stage.resource, sql)).await.unwrap();
    assert!(changed >= 5, "the counts are added up: {changed}");
    stage.commit(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await.len(), 1);
}

/// Before any of them runs.
async fn what_cannot_be_undone_refuses_all<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    DB::raw(&stage.pool, "CREATE VIEW sight AS SELECT * FROM item LIMIT 9").await.unwrap();
    let before = stage.dump("item", COLUMNS).await;
    for (sql, expected) in [
        ("UPDATE item SET n = 1; DROP TABLE item", "HF-AT-DDL"),
        ("DELETE FROM item; COMMIT", "HF-AT-TRANSACTION-CONTROL"),
        ("DELETE FROM item; UPDATE sight SET n = 1", "HF-AT-NOT-A-TABLE"),
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), expected, "{sql}");
        let refused = global.scope(DB::run_alone(&stage.resource, sql)).await.unwrap_err();
        assert_eq!(code(&refused), expected, "{sql}");
        stage.roll_back(global).await;
    }
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

async fn a_failed_statement_ends_the_text<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ITEM).await;
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    let sql = "UPDATE item SET n = 1; INSERT INTO item VALUES (1, 1); DELETE FROM item";
    let failed = global.scope(DB::run_alone(&stage.resource, sql)).await.unwrap_err();
    assert!(failed.as_database_error().is_some_and(|error| error.is_unique_violation()));
    assert_eq!(stage.dump("item", COLUMNS).await, before);
    stage.roll_back(global).await;
}

/// Which statement takes which argument, the databases do not agree on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_not_shared_out() {
    macro_rules! check {
        ($database:ty, $text:literal) => {
            let stage = Stage::<$database>::new(ITEM).await;
            let global = stage.begin().await;
            for sql in [$text, "UPDATE item SET n = 1; DELETE FROM item"] {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned())).bind(1);
                let refused = global.scope(query.execute(&stage.resource)).await.unwrap_err();
                assert_eq!(code(&refused), "HF-AT-SEVERAL-STATEMENTS", "{sql}");
            }
            stage.roll_back(global).await;
        };
    }
    check!(Postgres, "UPDATE item SET n = $1; DELETE FROM item");
    check!(MySql, "UPDATE item SET n = ?; DELETE FROM item");
    check!(Sqlite, "UPDATE item SET n = ?; DELETE FROM item");
}
