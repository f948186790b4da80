//! The sweep of old guard rows beside phase two.

use sqlx::Sqlite;

use crate::at::Stage;

/// Regression: a sweep that failed was answered as the failure of the call whose undo rows were
/// gone, and was tried again with every later call, so that no global finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sweep_fails_no_commit() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1)",
        "INSERT INTO undo_log (branch_id, xid, context, rollback_info, log_status, log_created) \
         VALUES (1, 'old', '', x'', 1, '2020-01-01 00:00:00.000')",
        "CREATE TRIGGER kept BEFORE DELETE ON undo_log WHEN OLD.log_status = 1 \
         BEGIN SELECT RAISE(ABORT, 'kept'); END",
    ])
    .await;
    for _ in 0..2 {
        let global = stage.begin().await;
        stage.branch(&global, &["UPDATE stock SET n = n + 1 WHERE id = 1"]).await;
        stage.commit(global).await;
    }
    let kept = stage.value("SELECT COUNT(*) FROM undo_log WHERE xid = 'old'").await;
    assert_eq!(kept.as_deref(), Some("1"), "the sweep has failed");
}
