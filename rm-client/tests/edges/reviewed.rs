//! What readers of the code have found, each reduced to its cause.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::error::DatabaseError;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(a_committed_read_reads_no_other_table_dirty);

const READ: &str = "HF-AT-LOCKING-READ";
const CHANGE: &str = "HF-AT-UNCHECKED-READ";

/// Locks were checked for the table in FROM alone: what an undecided global had written was read
/// through a sub-select.
async fn a_committed_read_reads_no_other_table_dirty<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE client (id INTEGER PRIMARY KEY, active INTEGER)",
        "CREATE TABLE bill (id INTEGER PRIMARY KEY, client INTEGER)",
        "INSERT INTO client VALUES (1, 0)",
        "INSERT INTO bill VALUES (7, 1)",
    ])
    .await;
    let writer = stage.begin().await;
    stage.branch(&writer, &["UPDATE client SET active = 1 WHERE id = 1"]).await;
    for (refusal, sql) in [
        (READ, "SELECT id FROM bill WHERE client IN (SELECT id FROM client WHERE active = 1)"),
        (READ, "SELECT id, (SELECT active FROM client WHERE client.id = bill.client) FROM bill"),
        (
            READ,
            "WITH live AS (SELECT id FROM client WHERE active = 1) \
             SELECT id FROM bill WHERE client IN (SELECT id FROM live)",
        ),
        (CHANGE, "UPDATE bill SET client = (SELECT active FROM client WHERE id = 1)"),
        (CHANGE, "DELETE FROM bill WHERE client IN (SELECT id FROM client WHERE active = 1)"),
        (CHANGE, "INSERT INTO bill (id, client) SELECT id, active FROM client"),
    ] {
        let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
        let read = async {
            let mut local = stage.resource.begin().await?;
            DB::read(&mut local, sql).await
        };
        let refused = reader.scope(read).await.unwrap_err();
        assert_eq!(code(&refused), refusal, "{sql}");
        stage.roll_back(reader).await;
    }
    stage.roll_back(writer).await;
}

/// The probe compared as the column does and found nothing where the index saw an equal: the row
/// met counted as inserted, and the undo deleted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_met_under_the_collation_of_its_index() {
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
async fn a_row_is_met_under_the_collation_of_its_key() {
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

/// Two indexes on the same column, of which SQLite takes either for the one that is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_met_by_either_index_on_the_columns_named() {
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
        // Whether SQLite updates the row or fails by the other index is its own affair.
        if let Err(error) = stage.try_branch(&global, &[sql]).await {
            let refused = error.as_database_error();
            assert!(refused.is_some_and(DatabaseError::is_unique_violation), "{error}");
        }
        stage.roll_back(global).await;
        assert_eq!(stage.dump("word", &["id", "k", "n"]).await, before);
    }
}

/// The key compares a prefix and the probe the whole text: a REPLACE removed a row unseen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_met_by_a_key_on_a_prefix() {
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

/// VALUES without a column list leave invisible columns out: the values counted for the columns
/// before theirs, and the undo deleted the row that had such a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invisible_column_takes_no_value() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE note (hidden INTEGER INVISIBLE DEFAULT 7, id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO note (hidden, id, n) VALUES (8, 1, 10), (9, 2, 20)",
        "CREATE TABLE line (id INTEGER AUTO_INCREMENT INVISIBLE PRIMARY KEY, a INTEGER, b INTEGER)",
        "INSERT INTO line VALUES (10, 10), (20, 20), (30, 30)",
    ])
    .await;
    for sql in [
        "INSERT INTO note VALUES (3, 1)",
        "INSERT INTO note VALUES (3, 1), (4, 2)",
        "INSERT INTO note VALUES (1, 5) ON DUPLICATE KEY UPDATE n = 5",
        "REPLACE INTO note VALUES (1, 5), (3, 5)",
        "INSERT INTO note (id, hidden) VALUES (3, 1)",
        "UPDATE note SET n = 5, hidden = 6",
        "DELETE FROM note",
    ] {
        stage.check_undone("note", &["hidden", "id", "n"], &[sql]).await;
    }
    for sql in [
        "INSERT INTO line VALUES (1, 2)",
        "INSERT INTO line VALUES (1, 2), (2, 3)",
        "REPLACE INTO line VALUES (1, 2)",
        "UPDATE line SET a = 5",
        "DELETE FROM line WHERE id < 3",
    ] {
        stage.check_undone("line", &["id", "a", "b"], &[sql]).await;
    }
}

/// The server makes a number of a bound 0, and the row read back was the one that has the key 0:
/// the undo deleted that one and left the row inserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_zero_is_not_the_row_of_key_zero() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE seat (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9), place INTEGER UNIQUE)",
        "INSERT INTO seat VALUES (8, 'eight', 8)",
        "SET STATEMENT sql_mode = 'NO_AUTO_VALUE_ON_ZERO' FOR INSERT INTO seat VALUES (0, 'zero', 0)",
    ])
    .await;
    for sql in [
        "INSERT INTO seat (id, v) VALUES (?, 'new')",
        "INSERT INTO seat (id, v) VALUES (?, 'new') ON DUPLICATE KEY UPDATE v = 'met'",
        "INSERT IGNORE INTO seat (id, v) VALUES (?, 'new')",
        "REPLACE INTO seat (id, v) VALUES (?, 'new')",
        "REPLACE INTO seat (id, v, place) VALUES (?, 'new', 8)",
        "INSERT INTO seat (id, v, place) VALUES (?, 'new', 9) ON DUPLICATE KEY UPDATE v = 'met'",
    ] {
        check_bound_zero(&stage, sql).await;
    }
}

/// Runs a statement with 0 bound, and finds its row gone after the rollback.
async fn check_bound_zero(stage: &Stage<MySql>, sql: &'static str) {
    let columns = ["id", "v", "place"];
    let before = stage.dump("seat", &columns).await;
    let global = stage.begin().await;
    let branch = async {
        let mut local = stage.resource.begin().await?;
        sqlx::query(sql).bind(0_i64).execute(&mut local).await?;
        local.commit().await
    };
    global.scope(branch).await.unwrap();
    assert_ne!(stage.dump("seat", &columns).await, before, "{sql}");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("seat", &columns).await, before, "{sql}");
}

/// A value that brings a collation along was looked up under that, and stored under the column's:
/// a REPLACE removed the row of an equal value unseen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_does_not_say_how_its_index_compares() {
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

/// PostgreSQL locks no rows of a read that gives several for one, and only it knows which functions
/// do. What it says of that is told of a plan that is too old as well, which a repetition cures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_read_whose_rows_cannot_be_locked_is_refused_once() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE member (id INTEGER PRIMARY KEY, tags TEXT[] NOT NULL)",
        "INSERT INTO member VALUES (1, '{a,b}')",
    ])
    .await;
    let global = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
    for sql in [
        "SELECT unnest(tags) FROM member WHERE id = 1",
        "SELECT CAST(id AS text) FROM member ORDER BY rank() OVER (ORDER BY id)",
    ] {
        let runs = AtomicU32::new(0);
        let read = stage.resource.transaction(|local| {
            runs.fetch_add(1, Ordering::Relaxed);
            Box::pin(Postgres::read(local, sql))
        });
        let refused = global.scope(read).await.unwrap_err();
        assert_eq!((code(&refused).as_str(), runs.into_inner()), (READ, 1), "{sql}");
    }
    stage.commit(global).await;
}
