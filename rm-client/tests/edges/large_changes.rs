//! Changes of more rows than fit into one statement by key.

use sqlx::Sqlite;

use crate::at::{Stage, code};

const MANY: &[&str] = &[
    "CREATE TABLE many (id INTEGER PRIMARY KEY, n INTEGER, born TEXT DEFAULT '2026-01-01')",
    "INSERT INTO many (n) WITH RECURSIVE one (n) AS \
     (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < 2500) SELECT n FROM one",
];

/// The change runs by key, a thousand rows at a time. The query would see the first thousand rows
/// changed when the second thousand is updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_in_an_assignment_sees_no_changed_row() {
    let stage = Stage::<Sqlite>::new(MANY).await;
    let sql = "UPDATE many SET n = n - (SELECT min(n) FROM many) WHERE born < date('now')";
    stage.check_undone("many", &["id", "n"], &[sql]).await;
    let global = stage.begin().await;
    stage.branch(&global, &[sql]).await;
    stage.commit(global).await;
    let wrong = "SELECT count(*) FROM many WHERE n <> id - 1";
    assert_eq!(stage.value(wrong).await.as_deref(), Some("0"));

    sqlx::query("INSERT INTO many (n) SELECT one.n FROM many one, many WHERE many.id < 15")
        .execute(&stage.pool)
        .await
        .unwrap();
    let before = stage.value("SELECT sum(n) FROM many").await;
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-TOO-MANY-ROWS");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT sum(n) FROM many").await, before);
}
