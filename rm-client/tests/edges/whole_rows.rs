//! Tables of PostgreSQL without any key: all values of a row together name it, so that one of
//! several equal rows stands for another.

use std::time::Duration;

use handfast_core::{Resolution, RowChange, RowStanding};
use sqlx::Postgres;

use crate::at::{Stage, TestDatabase, code};

const BAG: &[&str] = &[
    "CREATE DOMAIN short AS varchar(9)",
    "CREATE TABLE bag (a int, b short, n numeric, f float8, j json, at timestamptz, \
     twice int GENERATED ALWAYS AS (a * 2) STORED, m int4[], u int UNIQUE)",
    "INSERT INTO bag (a, b, n, f, j, at, m) VALUES \
     (1, 'x', 1.0, '-0', '{\"k\": 1}', '2026-01-02 03:04:05+01', '{1,NULL}'), \
     (1, 'x', 1.0, '-0', '{\"k\": 1}', '2026-01-02 03:04:05+01', '{1,NULL}'), \
     (1, 'x', 1.00, '0', '{\"k\":1}', '2026-01-02 03:04:05+01', '{1,NULL}'), \
     (NULL, NULL, 'NaN', 'NaN', NULL, 'infinity', '[2:3]={1,2}'), \
     (NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "INSERT INTO bag (a, u) VALUES (7, 7)",
];
const COLUMNS: &[&str] = &["encode(record_send(bag), 'hex')"];

async fn stage() -> Stage<Postgres> {
    Stage::<Postgres>::new(BAG).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_inserted_and_deleted_and_undone() {
    let again =
        "INSERT INTO bag (a, b, n, f, j, at, m, u) SELECT a, b, n, f, j, at, m, NULL FROM bag";
    let stage = stage().await;
    for statements in [
        &["INSERT INTO bag (a, b) VALUES (1, 'x'), (1, 'x'), (2, NULL)"][..],
        &[again],
        &[again, again, "DELETE FROM bag WHERE a = 1"],
        &["DELETE FROM bag"],
        &["DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)"],
        &["DELETE FROM bag WHERE a = 1 RETURNING a", again],
        &["INSERT INTO bag (a, u) VALUES (8, 7), (8, 8) ON CONFLICT DO NOTHING"],
        &["INSERT INTO bag (a) SELECT n % 3 FROM generate_series(1, 2000) n"],
        &["WITH gone AS (DELETE FROM bag WHERE a = 1 RETURNING a) \
           SELECT count(*) FROM gone"],
    ] {
        stage.check_undone("bag", COLUMNS, statements).await;
    }
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM bag WHERE a = 1", again]).await;
    stage.commit(global).await;
    assert_eq!(stage.value("SELECT count(*) FROM bag").await.as_deref(), Some("6"));
}

/// Which of equal rows is meant cannot be said, so all of them are locked as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_rows_share_a_lock() {
    let stage = stage().await;
    let pool = Postgres::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["INSERT INTO bag (a) VALUES (5)"]).await;
    let global = stage.begin().await;
    let equal = Postgres::run_alone(&other, "INSERT INTO bag (a) VALUES (5)");
    assert_eq!(code(&global.scope(equal).await.unwrap_err()), "HF-TC-ROW-LOCKED");
    let deleted = Postgres::run_alone(&other, "DELETE FROM bag WHERE a = 5");
    assert_eq!(code(&global.scope(deleted).await.unwrap_err()), "HF-TC-ROW-LOCKED");
    global.scope(Postgres::run_alone(&other, "INSERT INTO bag (a) VALUES (6)")).await.unwrap();
    stage.roll_back(global).await;
    stage.roll_back(holder).await;
    assert_eq!(stage.value("SELECT count(*) FROM bag WHERE a > 4").await.as_deref(), Some("1"));
}

/// Another program has changed one of two equal inserted rows: the undo cannot tell that from a
/// deleted one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_row_needs_an_operator() {
    let stage = stage().await;
    let global = stage.begin().await;
    let inserted = "INSERT INTO bag (a, b) VALUES (5, 'y'), (6, 'z'), (6, 'z')";
    let again = "INSERT INTO bag (a, b) VALUES (6, 'z')";
    stage.branch(&global, &["DELETE FROM bag WHERE a = 7", inserted, again]).await;
    Postgres::raw(&stage.pool, "UPDATE bag SET b = 'own' WHERE a = 5").await.unwrap();
    let refused = stage.refused(global).await;
    assert!(refused.error.contains("1 of 3 rows"), "{}", refused.error);
    let standings: Vec<_> = refused.shown().iter().map(|row| (row.1, row.2, row.3)).collect();
    assert_eq!(
        standings,
        [
            (RowStanding::Dirty, RowChange::Left, RowChange::Left),
            (RowStanding::Clean, RowChange::Inserted, RowChange::Inserted),
            (RowStanding::Clean, RowChange::Removed, RowChange::Removed),
        ]
    );
    stage.end(&refused, Resolution::RestoreClean).await;
    let kept = "SELECT string_agg(a || coalesce(b, ''), ',' ORDER BY a) FROM bag WHERE a > 1";
    assert_eq!(stage.value(kept).await.as_deref(), Some("5own,7"));
}

/// References are locked by what the rows say, where that names the row referred to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_refer_lock_what_they_refer_to() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE post (id bigint PRIMARY KEY)",
        "CREATE TABLE post_tag (post bigint NOT NULL REFERENCES post ON DELETE CASCADE, tag int)",
        "INSERT INTO post VALUES (1)",
        "INSERT INTO post_tag VALUES (1, 1), (1, 1)",
    ])
    .await;
    let columns = &["post", "tag"];
    stage.check_undone("post_tag", columns, &["INSERT INTO post_tag VALUES (1, 1)"]).await;
    stage.check_undone("post_tag", columns, &["DELETE FROM post_tag WHERE post = 1"]).await;
    let holder = stage.begin().await;
    stage.branch(&holder, &["INSERT INTO post VALUES (2)"]).await;
    let pool = Postgres::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let global = stage.begin().await;
    let child = Postgres::run_alone(&other, "INSERT INTO post_tag VALUES (2, 1)");
    assert_eq!(code(&global.scope(child).await.unwrap_err()), "HF-TC-ROW-LOCKED");
    // Rows without a key do not go along yet.
    let along = stage.try_branch(&global, &["DELETE FROM post WHERE id = 1"]).await.unwrap_err();
    assert_eq!(code(&along), "HF-AT-CASCADE");
    stage.roll_back(global).await;
    stage.roll_back(holder).await;
}
