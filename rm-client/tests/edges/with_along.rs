//! PostgreSQL: a DELETE inside WITH from a table to which foreign keys with an action refer.

use sqlx::Postgres;

use super::with_upserts::{commit_when_waited_for, like_plain};
use crate::at::{Stage, code};

const TABLES: &[&str] = &[
    "CREATE TABLE job (id INT PRIMARY KEY, state TEXT, above INT REFERENCES job ON DELETE CASCADE)",
    "CREATE TABLE failure (id INT PRIMARY KEY, job INT REFERENCES job ON DELETE CASCADE)",
    "CREATE TABLE note (id INT PRIMARY KEY, job INT REFERENCES job ON DELETE SET NULL)",
    "CREATE TABLE archive (id INT PRIMARY KEY, state TEXT)",
    "INSERT INTO job VALUES (1, 'done', NULL), (2, 'open', NULL), (3, 'done', 1), \
     (4, 'dead', NULL), (5, 'left', NULL)",
    "INSERT INTO failure VALUES (1, 4)",
    "INSERT INTO note VALUES (1, 5)",
];
const DUMPED: &[(&str, &[&str])] = &[
    ("job", &["id", "state", "above"]),
    ("failure", &["id", "job"]),
    ("note", &["id", "job"]),
    ("archive", &["id", "state"]),
];
const MOVES: &str = "WITH gone AS (DELETE FROM job WHERE state = 'done' RETURNING id, state) \
                     INSERT INTO archive SELECT id, state FROM gone";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_without_others_along_are_moved() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    like_plain(&stage, DUMPED, MOVES).await;
    let sql = "WITH u AS (UPDATE archive SET state = 'x' RETURNING id) \
               DELETE FROM job WHERE state IN ('done', 'open')";
    like_plain(&stage, DUMPED, sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_along_are_refused() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let into = "INSERT INTO archive SELECT id, state FROM gone";
    for (sql, why) in [
        (
            format!("WITH gone AS (DELETE FROM job WHERE state = 'dead' RETURNING *) {into}"),
            "along with those",
        ),
        (
            format!("WITH gone AS (DELETE FROM job WHERE state = 'left' RETURNING *) {into}"),
            "along with those",
        ),
        (
            format!("WITH gone AS (DELETE FROM job WHERE id = 1 RETURNING *) {into}"),
            "along with those",
        ),
        // Such a row would be gone again at the end of the statement.
        (
            "WITH gone AS (DELETE FROM job WHERE state = 'open') INSERT INTO failure VALUES (7, 2)"
                .to_owned(),
            "writes that table, too",
        ),
        (
            "WITH gone AS (DELETE FROM job WHERE state = 'open') \
             INSERT INTO job VALUES (7, 'x', 2)"
                .to_owned(),
            "writes that table, too",
        ),
        (
            "WITH a AS (INSERT INTO archive VALUES (2, 'q') RETURNING id) \
             DELETE FROM job WHERE id IN (SELECT id FROM a)"
                .to_owned(),
            "needs a read before it",
        ),
    ] {
        let global = stage.begin().await;
        let error = stage.try_branch(&global, &[&sql]).await.unwrap_err();
        assert_eq!(code(&error), "HF-AT-WRITE-IN-WITH", "{sql}");
        assert!(error.to_string().contains(why), "{sql}: {error}");
        stage.roll_back(global).await;
    }
}

/// The rows are read by one statement and deleted by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_not_read_are_noticed() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let mut other = stage.pool.begin().await.unwrap();
    let hold = "UPDATE job SET state = 'done' WHERE id = 1";
    sqlx::raw_sql(hold).execute(&mut *other).await.unwrap();
    let global = stage.begin().await;
    let add = "INSERT INTO job VALUES (9, 'done', NULL); INSERT INTO failure VALUES (9, 9)";
    let overtake = commit_when_waited_for(&stage, other, add, DUMPED);
    let (ours, _) = tokio::join!(stage.try_branch(&global, &[MOVES]), overtake);
    assert_eq!(code(&ours.unwrap_err()), "HF-AT-ROWS-DIFFER");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT count(*) FROM failure").await.as_deref(), Some("2"));
    assert_eq!(stage.value("SELECT count(*) FROM archive").await.as_deref(), Some("0"));
}
