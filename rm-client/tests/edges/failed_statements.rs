//! Statements that fail within a local transaction that goes on, or that end it.

use sqlx::{MySql, Sqlite};

use crate::at::{Stage, TestDatabase, code};

const SEAT: &[&str] = &[
    "CREATE TABLE seat (id INTEGER NOT NULL PRIMARY KEY, place INTEGER UNIQUE, n INTEGER)",
    "INSERT INTO seat VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0)",
];

/// SQLite does not undo every failed statement as a whole. Such a statement left changed rows
/// without an image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_statement_leaves_nothing_on_sqlite() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE strict_seat (id INTEGER PRIMARY KEY, n INTEGER) STRICT",
        "INSERT INTO strict_seat VALUES (1, 1), (2, 2), (3, 9223372036854775807)",
        "CREATE TABLE loose_seat (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO loose_seat VALUES (1, -1), (2, -2), (3, -9223372036854775807 - 1)",
    ])
    .await;
    for (table, failing) in [
        ("strict_seat", "UPDATE strict_seat SET n = n + 1"),
        ("loose_seat", "UPDATE loose_seat SET n = abs(n)"),
        ("loose_seat", "INSERT INTO loose_seat SELECT id + 10, abs(n) FROM loose_seat"),
        // One row, whose change needs no savepoint.
        ("strict_seat", "UPDATE strict_seat SET n = n + 1 WHERE id = 3"),
        ("loose_seat", "UPDATE loose_seat SET n = abs(n) WHERE id = 3"),
        // The RETURNING clause fails, not the change.
        ("loose_seat", "UPDATE loose_seat SET n = n + 1 WHERE id = 3 RETURNING abs(n - 1)"),
    ] {
        let before = stage.dump(table, &["id", "n"]).await;
        let global = stage.begin().await;
        fail_then_continue(&stage, &global, failing).await;
        stage.roll_back(global).await;
        assert_eq!(stage.dump(table, &["id", "n"]).await, before, "{failing}");
    }
}

/// A change by key that failed at once made it impossible to commit the branch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_goes_on_after_a_failed_change_by_key() {
    let failing = "UPDATE seat SET place = 1 WHERE id IN (SELECT a FROM other)";
    let other = ["CREATE TABLE other (a INTEGER)", "INSERT INTO other VALUES (2), (3)"];
    let stage = Stage::<MySql>::new(&[SEAT, &other].concat()).await;
    let global = stage.begin().await;
    fail_then_continue(&stage, &global, failing).await;
    stage.commit(global).await;
}

/// Runs a failing statement and then a successful one, in one branch that commits.
async fn fail_then_continue<DB: TestDatabase>(
    stage: &Stage<DB>,
    global: &handfast::Global,
    failing: &str,
) {
    let branch = async {
        let mut local = stage.resource.begin().await?;
        DB::run(&mut local, failing).await.unwrap_err();
        let table = failing.split_whitespace().find(|word| word.ends_with("seat")).unwrap();
        DB::run(&mut local, &format!("DELETE FROM {table} WHERE id = 1")).await?;
        local.commit().await
    };
    global.scope(branch).await.unwrap();
}

/// The statement had rolled back the whole local transaction. The statements after it were
/// committed alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_after_a_raised_rollback_are_refused() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1), (2, 1)",
        "CREATE TRIGGER positive BEFORE UPDATE ON stock WHEN NEW.n < 0 \
         BEGIN SELECT RAISE(ROLLBACK, 'negative'); END",
    ])
    .await;
    let trusting = stage.handfast.at(stage.pool.clone()).trust_trigger("positive").await.unwrap();
    let before = stage.dump("stock", &["id", "n"]).await;
    let global = stage.begin().await;
    let work = async {
        let mut local = trusting.begin().await?;
        Sqlite::run(&mut local, "UPDATE stock SET n = 5 WHERE id = 1").await?;
        let failed = Sqlite::run(&mut local, "UPDATE stock SET n = -1 WHERE id = 2").await;
        let failed = failed.unwrap_err();
        assert!(failed.to_string().contains("negative"), "{failed}");
        let after = Sqlite::run(&mut local, "UPDATE stock SET n = 7 WHERE id = 2").await;
        assert_eq!(code(&after.unwrap_err()), "HF-AT-ENDED");
        local.commit().await
    };
    assert_eq!(code(&global.scope(work).await.unwrap_err()), "HF-AT-ENDED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("stock", &["id", "n"]).await, before);
    assert_eq!(stage.undo_rows().await, 0);
}
