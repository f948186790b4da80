//! Tables without a primary key, whose rows a unique index names.

use std::time::Duration;

use sqlx::{Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_unique_index_names_the_rows,
    processes_name_a_row_alike,
    an_index_that_does_not_name_every_row_is_no_key,
);

const PAIRS: &[&str] = &[
    "CREATE TABLE pair (post BIGINT NOT NULL, tag VARCHAR(9) NOT NULL, note VARCHAR(9), \
     UNIQUE (note), UNIQUE (post, tag))",
    "INSERT INTO pair VALUES (1, 'a', NULL), (1, 'b', NULL), (2, 'a', 'n')",
];
const PAIR: &[&str] = &["post", "tag", "note"];

async fn a_unique_index_names_the_rows<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PAIRS).await;
    let upsert = match DB::NAME_IN_TESTS {
        "mysql" => {
            "INSERT INTO pair VALUES (1, 'a', 'm') \
                    ON DUPLICATE KEY UPDATE tag = tag, note = VALUES(note)"
        }
        _ => {
            "INSERT INTO pair VALUES (1, 'a', 'm'), (3, 'c', NULL) \
              ON CONFLICT (post, tag) DO UPDATE SET tag = excluded.tag, note = excluded.note"
        }
    };
    for sql in [
        "INSERT INTO pair VALUES (5, 'e', 'x'), (6, 'f', NULL)",
        "UPDATE pair SET note = 'y' WHERE post = 1 AND tag = 'b'",
        "UPDATE pair SET note = NULL",
        "UPDATE pair SET post = 9 WHERE tag = 'b'",
        "DELETE FROM pair WHERE post = 1",
        upsert,
    ] {
        stage.check_undone("pair", PAIR, &[sql]).await;
    }
}

async fn processes_name_a_row_alike<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE two (z BIGINT NOT NULL UNIQUE, a BIGINT NOT NULL UNIQUE, n INT)",
        "INSERT INTO two VALUES (1, 5, 0)",
    ])
    .await;
    let pool = DB::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE two SET n = 1 WHERE z = 1"]).await;
    let global = stage.begin().await;
    let sql = "UPDATE two SET n = 2 WHERE a = 5";
    let error = global.scope(DB::run_alone(&other, sql)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
    stage.roll_back(global).await;
    stage.roll_back(holder).await;
    assert_eq!(stage.value("SELECT n FROM two").await.as_deref(), Some("0"));
}

async fn an_index_that_does_not_name_every_row_is_no_key<DB: TestDatabase>() {
    let stage =
        Stage::<DB>::new(&["CREATE TABLE loose (a BIGINT UNIQUE, n BIGINT NOT NULL)"]).await;
    refuse(&stage, "INSERT INTO loose VALUES (1, 2)").await;
    // As the refusal advises.
    DB::raw(&stage.pool, "CREATE UNIQUE INDEX by_n ON loose (n)").await.unwrap();
    let again = stage.handfast.at(stage.pool.clone()).await.unwrap();
    let global = stage.begin().await;
    global.scope(DB::run_alone(&again, "INSERT INTO loose VALUES (1, 2)")).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM loose").await.as_deref(), Some("0"));
}

async fn refuse<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) {
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-NO-PRIMARY-KEY", "{sql}");
    stage.roll_back(global).await;
}

/// A condition on the column finds rows that the index distinguishes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_finer_than_its_column_is_no_key() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE word (w TEXT COLLATE NOCASE NOT NULL, n INT)",
        "CREATE UNIQUE INDEX by_w ON word (w COLLATE BINARY)",
        "INSERT INTO word VALUES ('a', 1), ('A', 2)",
    ])
    .await;
    refuse(&stage, "UPDATE word SET n = 3 WHERE n = 1").await;
}

/// An index of one partition would name rows otherwise than the whole does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_and_deferrable_indexes_name_no_rows() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE whole (a INT NOT NULL, b INT NOT NULL, UNIQUE (a, b)) PARTITION BY LIST (a)",
        "CREATE TABLE part PARTITION OF whole FOR VALUES IN (1)",
        "CREATE UNIQUE INDEX of_part ON part (b)",
        "CREATE TABLE late (a INT NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE half (a INT NOT NULL, n INT)",
        "CREATE UNIQUE INDEX of_half ON half (a) WHERE n > 0",
    ])
    .await;
    for sql in [
        "INSERT INTO whole VALUES (1, 1)",
        "INSERT INTO part VALUES (1, 1)",
        "INSERT INTO late VALUES (1)",
        "INSERT INTO half VALUES (1, 1)",
    ] {
        refuse(&stage, sql).await;
    }
}
