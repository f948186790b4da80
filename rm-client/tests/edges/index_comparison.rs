//! Rows that an upsert or REPLACE matches by an index that compares differently from the column or
//! the value.

use sqlx::error::DatabaseError;
use sqlx::{MySql, Sqlite};

use crate::at::{Stage, code};

/// The probe compared as the column does and found no row where the index found an equal one. The
/// updated row counted as inserted, and the undo deleted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_matched_by_its_index_collation() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE member (id INTEGER PRIMARY KEY, email TEXT NOT NULL, n INTEGER)",
        "CREATE UNIQUE INDEX member_email ON member (email COLLATE NOCASE)",
        "INSERT INTO member VALUES (1, 'bob@x', 10), (2, 'eve@x', 20)",
    ])
    .await;
    for sql in [
        "INSERT INTO member (email, n) VALUES ('BOB@x', 5) ON CONFLICT (email) DO UPDATE SET n = 5",
        "INSERT INTO member (email, n) VALUES ('BOB@x', 5), ('EVE@x', 6), ('new@x', 7) \
         ON CONFLICT DO UPDATE SET n = excluded.n",
        "REPLACE INTO member (email, n) VALUES ('BOB@x', 5)",
        "REPLACE INTO member (email, n) VALUES ('BOB@x' COLLATE BINARY, 5)",
    ] {
        stage.check_undone("member", &["id", "email", "n"], &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_matched_by_its_key_collation() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE word (k TEXT NOT NULL, n INTEGER, PRIMARY KEY (k COLLATE NOCASE))",
        "INSERT INTO word VALUES ('a', 1), ('b', 2)",
    ])
    .await;
    for sql in [
        "INSERT INTO word VALUES ('A', 5) ON CONFLICT (k) DO UPDATE SET n = 5",
        "REPLACE INTO word VALUES ('A', 5)",
    ] {
        stage.check_undone("word", &["k", "n"], &[sql]).await;
    }
}

/// There are two indexes on the same column, and SQLite may use either of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_matched_by_either_of_two_indexes() {
    let exact = "CREATE UNIQUE INDEX exact ON word (k COLLATE BINARY)";
    let loose = "CREATE UNIQUE INDEX loose ON word (k COLLATE NOCASE)";
    for indexes in [[exact, loose], [loose, exact]] {
        let stage = Stage::<Sqlite>::new(&[
            "CREATE TABLE word (id INTEGER PRIMARY KEY, k TEXT NOT NULL, n INTEGER)",
            indexes[0],
            indexes[1],
            "INSERT INTO word VALUES (1, 'a', 1), (2, 'b', 2)",
        ])
        .await;
        let sql = "INSERT INTO word (k, n) VALUES ('a', 5) ON CONFLICT (k) DO UPDATE SET n = 5";
        stage.check_undone("word", &["id", "k", "n"], &[sql]).await;
        let before = stage.dump("word", &["id", "k", "n"]).await;
        let global = stage.begin().await;
        let sql = "INSERT INTO word (k, n) VALUES ('A', 5) ON CONFLICT (k) DO UPDATE SET n = 5";
        // SQLite may update the row or fail by the other index.
        if let Err(error) = stage.try_branch(&global, &[sql]).await {
            let refused = error.as_database_error();
            assert!(refused.is_some_and(DatabaseError::is_unique_violation), "{error}");
        }
        stage.roll_back(global).await;
        assert_eq!(stage.dump("word", &["id", "k", "n"]).await, before);
    }
}

/// The key compares a prefix, and the probe compared the whole text: a REPLACE removed a row
/// without an image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_by_a_key_on_a_prefix_is_refused() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE page (url TEXT NOT NULL, n INTEGER, PRIMARY KEY (url(4)))",
        "INSERT INTO page VALUES ('http://a', 1)",
    ])
    .await;
    let before = stage.dump("page", &["url", "n"]).await;
    for sql in [
        "REPLACE INTO page VALUES ('http://b', 5)",
        "INSERT INTO page VALUES ('http://b', 5) ON DUPLICATE KEY UPDATE n = 5",
        "INSERT IGNORE INTO page VALUES ('http://b', 5), ('ftp://b', 5)",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await;
        stage.roll_back(global).await;
        assert_eq!(stage.dump("page", &["url", "n"]).await, before, "{sql}");
        assert_eq!(code(&refused.unwrap_err()), "HF-AT-UPSERT-INDEX", "{sql}");
    }
    stage.check_undone("page", &["url", "n"], &["INSERT INTO page VALUES ('ftp://b', 5)"]).await;
}

/// A value with a collation of its own was searched under that collation, and stored under the
/// column's. A REPLACE removed the row of an equal value without an image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collation_of_a_value_is_ignored() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE member (id INTEGER AUTO_INCREMENT PRIMARY KEY, n INTEGER, \
         email VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci UNIQUE)",
        "INSERT INTO member VALUES (1, 1, 'bob'), (2, 2, 'eve')",
    ])
    .await;
    for sql in [
        "REPLACE INTO member (email, n) VALUES ('BOB' COLLATE utf8mb4_bin, 5)",
        "REPLACE INTO member (email, n) VALUES (CAST('BOB' AS BINARY), 5)",
        "REPLACE INTO member (email, n) VALUES (CONCAT('B', 'OB' COLLATE utf8mb4_bin), 5)",
        "REPLACE INTO member (email, n) VALUES (LEFT(CAST('BOBX' AS BINARY), 3), 5)",
        "REPLACE INTO member (email, n) VALUES (CHAR(66, 79, 66), 5)",
        "REPLACE INTO member (email, n) VALUES (UNHEX('424f42'), 5), (UPPER('new'), 6)",
        "REPLACE INTO member (email, n) VALUES (JSON_UNQUOTE(JSON_EXTRACT('[\"BOB\"]', '$[0]')), 5)",
        "INSERT INTO member (email, n) VALUES (CAST('BOB' AS BINARY), 5) \
         ON DUPLICATE KEY UPDATE n = 5",
        "INSERT IGNORE INTO member (email, n) VALUES (CAST('new' AS BINARY), 5)",
    ] {
        stage.check_undone("member", &["id", "email", "n"], &[sql]).await;
    }
}

/// The value is stored without its fraction, so no probe found the row that it replaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_replace_matches_unseen_stays() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE slot (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DATETIME UNIQUE, n INT)",
        "INSERT INTO slot VALUES (3, '2026-01-01 10:00:00', 1)",
    ])
    .await;
    let before = stage.dump("slot", &["id", "n"]).await;
    for sql in [
        "REPLACE INTO slot (at, n) VALUES ('2026-01-01 10:00:00.3', 5)",
        "REPLACE INTO slot VALUES (9, '2026-01-01 10:00:00.3', 5)",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROWS-DIFFER", "{sql}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("slot", &["id", "n"]).await, before, "{sql}");
    }
}
