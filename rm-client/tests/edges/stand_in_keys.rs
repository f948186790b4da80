//! Tables without a primary key, whose rows a unique index names.

use std::time::Duration;

use handfast::GlobalStatus;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(a_unique_index_names_the_rows, processes_name_a_row_alike);

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
    refuse(&stage, "UPDATE loose SET n = 3").await;
    // As the refusal advises.
    DB::raw(&stage.pool, "CREATE UNIQUE INDEX by_n ON loose (n)").await.unwrap();
    let again = stage.handfast.at(stage.pool.clone()).await.unwrap();
    let global = stage.begin().await;
    global.scope(DB::run_alone(&again, "INSERT INTO loose VALUES (1, 2)")).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM loose").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_nulls_is_no_key_on_postgres() {
    an_index_that_does_not_name_every_row_is_no_key::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_nulls_is_no_key_on_mysql() {
    an_index_that_does_not_name_every_row_is_no_key::<MySql>().await;
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
    // The row id tells them apart.
    stage.check_undone("word", &["w", "n"], &["UPDATE word SET n = 3 WHERE n = 1"]).await;
}

/// A table of SQLite has a row id, under a name that none of its columns has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_id_names_rows_without_a_key() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE bag (a INT, b TEXT, u INT UNIQUE, rowid TEXT)",
        "INSERT INTO bag VALUES (1, 'x', 5, 'r'), (1, 'x', NULL, 'r'), (1, 'x', NULL, 'r'), \
         (2, NULL, 6, NULL)",
    ])
    .await;
    for sql in [
        "INSERT INTO bag VALUES (1, 'x', NULL, 'r'), (3, 'y', 7, NULL)",
        "INSERT INTO bag (b) SELECT b FROM bag WHERE a = 1",
        "UPDATE bag SET b = 'z', rowid = 's' WHERE a = 1",
        "UPDATE bag SET a = a + 1",
        "UPDATE bag SET _rowid_ = 77 WHERE u = 5",
        "DELETE FROM bag WHERE u IS NULL",
        "DELETE FROM bag WHERE _rowid_ = 2",
        "DELETE FROM bag",
        "INSERT INTO bag VALUES (9, 'n', 5, NULL) ON CONFLICT (u) DO UPDATE SET a = excluded.a",
        "INSERT OR IGNORE INTO bag VALUES (9, 'n', 5, NULL), (9, 'n', 8, NULL)",
        "REPLACE INTO bag VALUES (9, 'n', 5, NULL), (9, 'n', 6, NULL)",
    ] {
        stage.check_undone("bag", &["a", "b", "u", "rowid", "_rowid_"], &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_without_a_key_go_along() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE par (id INTEGER PRIMARY KEY)",
        "CREATE TABLE gone (pid INT REFERENCES par ON DELETE CASCADE, n INT)",
        "CREATE TABLE kept (pid INT REFERENCES par ON DELETE SET NULL, n INT)",
        "INSERT INTO par VALUES (1), (2)",
        "INSERT INTO gone VALUES (1, 5), (1, 5), (2, 6)",
        "INSERT INTO kept VALUES (1, 5), (1, 5), (2, 6)",
    ])
    .await;
    for table in ["gone", "kept"] {
        let columns = ["pid", "n", "rowid"];
        stage.check_undone(table, &columns, &["DELETE FROM par WHERE id = 1"]).await;
    }
}

/// VACUUM may give rows other ids: a row that came under the id of a changed one is not written
/// over, whichever of its columns tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_row_under_the_id_is_a_dirty_write() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE bag (a INT, n INT)",
        "INSERT INTO bag VALUES (1, 5), (2, 6)",
    ])
    .await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE bag SET n = 6 WHERE a = 1"]).await;
    for sql in ["DELETE FROM bag WHERE rowid = 1", "UPDATE bag SET rowid = 1 WHERE rowid = 2"] {
        Sqlite::raw(&stage.pool, sql).await.unwrap();
    }
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap_err();
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
    let row = vec![Some("2".to_owned()), Some("6".to_owned())];
    assert_eq!(stage.dump("bag", &["a", "n"]).await, [row]);
}

/// One of two equal rows is locked, and the other is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_rows_are_locked_one_by_one() {
    let stage =
        Stage::<Sqlite>::new(&["CREATE TABLE bag (a INT)", "INSERT INTO bag VALUES (1), (1)"])
            .await;
    let pool = Sqlite::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE bag SET a = 2 WHERE rowid = 1"]).await;
    let global = stage.begin().await;
    let locked = global.scope(Sqlite::run_alone(&other, "DELETE FROM bag WHERE rowid = 1")).await;
    assert_eq!(code(&locked.unwrap_err()), "HF-TC-ROW-LOCKED");
    global.scope(Sqlite::run_alone(&other, "DELETE FROM bag WHERE rowid = 2")).await.unwrap();
    stage.roll_back(global).await;
    stage.roll_back(holder).await;
    let counted = stage.value("SELECT COUNT(*) FROM bag WHERE a = 1").await;
    assert_eq!(counted.as_deref(), Some("2"));
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
        "UPDATE late SET a = 1",
        "UPDATE half SET n = 1",
    ] {
        refuse(&stage, sql).await;
    }
}

/// A column of the key is set to its default, as which it is read before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_set_to_its_default_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE seat (place INT NOT NULL DEFAULT 7 UNIQUE, n INT)",
        "INSERT INTO seat VALUES (1, 1), (2, 2)",
    ])
    .await;
    let sql = "UPDATE seat SET place = DEFAULT, n = 5 WHERE place = 2";
    stage.check_undone("seat", &["place", "n"], &[sql]).await;
}
