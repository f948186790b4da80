//! Statements that offer a row twice, or rows under a key that another row has.

use sqlx::{MySql, Sqlite};

use crate::at::{Stage, code};

const SEAT: &[&str] = &[
    "CREATE TABLE seat (id INTEGER NOT NULL PRIMARY KEY, place INTEGER UNIQUE, n INTEGER)",
    "INSERT INTO seat VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0)",
];

const COLUMNS: &[&str] = &["id", "place", "n"];

/// The rows offered twice counted as rows that no probe had found, and the upsert failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_upsert_may_offer_a_row_twice_on_sqlite() {
    let stage = Stage::<Sqlite>::new(SEAT).await;
    for sql in [
        "INSERT INTO seat VALUES (1, 1, 5), (1, 1, 6) ON CONFLICT (id) DO UPDATE SET n = n + 1",
        "INSERT INTO seat VALUES (9, 9, 5), (9, 9, 6) ON CONFLICT (id) DO UPDATE SET n = n + 1",
        "REPLACE INTO seat VALUES (1, 1, 5), (1, 1, 6)",
        "REPLACE INTO seat VALUES (9, 9, 5), (8, 9, 6), (8, 2, 7)",
        "REPLACE INTO seat VALUES (NULL, 7, 5), (NULL, 7, 6)",
    ] {
        stage.check_undone("seat", COLUMNS, &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_upsert_may_offer_a_row_twice_on_mysql() {
    let stage = Stage::<MySql>::new(SEAT).await;
    for sql in [
        "INSERT INTO seat VALUES (1, 1, 5), (1, 1, 6) ON DUPLICATE KEY UPDATE n = n + 1",
        "INSERT INTO seat VALUES (9, 9, 5), (9, 9, 6) ON DUPLICATE KEY UPDATE n = n + 1",
        "REPLACE INTO seat VALUES (1, 1, 5), (1, 1, 6)",
    ] {
        stage.check_undone("seat", COLUMNS, &[sql]).await;
    }
}

/// A row that offers no value of a unique index is found by none. Where another row had met two,
/// the counts agreed all the same, and the undo left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_no_index_finds_is_refused_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE pair (id INT AUTO_INCREMENT PRIMARY KEY, a INT UNIQUE, b INT UNIQUE)",
        "INSERT INTO pair VALUES (1, 1, NULL), (2, NULL, 1), (3, 3, 3)",
    ])
    .await;
    let columns = &["id", "a", "b"];
    let global = stage.begin().await;
    for sql in [
        "REPLACE INTO pair (a, b) VALUES (NULLIF(1, 1), NULLIF(1, 1)), (1, 2), (3, 4)",
        "INSERT INTO pair (a, b) VALUES (NULLIF(1, 1), NULLIF(1, 1)), (1, 1) \
         ON DUPLICATE KEY UPDATE id = id",
    ] {
        let before = stage.dump("pair", columns).await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-KEY-UNKNOWN", "{sql}: {refused}");
        assert_eq!(stage.dump("pair", columns).await, before, "{sql}");
    }
    stage.roll_back(global).await;
    for sql in [
        "REPLACE INTO pair (a, b) VALUES (NULLIF(1, 2), NULLIF(1, 1)), (3, 4)",
        "INSERT INTO pair (a, b) VALUES (5, NULLIF(1, 1)), (1, 1) ON DUPLICATE KEY UPDATE id = id",
    ] {
        stage.check_undone("pair", columns, &[sql]).await;
    }
}

/// A REPLACE under an equal key counted as an update of the row, whose undo restores no key: `a`
/// came back as `A`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_spelling_of_a_key_is_restored() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE word (k TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, n INTEGER)",
        "INSERT INTO word VALUES ('a', 1), ('b', 2)",
    ])
    .await;
    for sql in ["REPLACE INTO word VALUES ('A', 1)", "REPLACE INTO word VALUES ('A', 1), ('B', 2)"]
    {
        stage.check_undone("word", &["k", "n"], &[sql]).await;
    }
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE word (k VARCHAR(9) PRIMARY KEY, n INTEGER)",
        "INSERT INTO word VALUES ('a', 1), ('b', 2)",
    ])
    .await;
    stage.check_undone("word", &["k", "n"], &["REPLACE INTO word VALUES ('A', 1)"]).await;
}
