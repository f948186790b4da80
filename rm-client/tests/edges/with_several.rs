//! PostgreSQL: several writes of one table in one statement.

use sqlx::{AssertSqlSafe, Postgres};

use super::with_upserts::like_plain;
use crate::at::{Stage, TestDatabase, code};

const TABLES: &[&str] = &[
    "CREATE TABLE item (id INT PRIMARY KEY, name TEXT UNIQUE, n INT, top BOOLEAN NOT NULL)",
    "CREATE UNIQUE INDEX item_top ON item (top) WHERE top",
    "CREATE TABLE pair (a INT, b TIMESTAMPTZ, n INT, PRIMARY KEY (a, b))",
    "CREATE TABLE bare (a INT, b TEXT)",
    "CREATE TABLE tree (id INT PRIMARY KEY, above INT REFERENCES tree)",
    "CREATE TABLE code (id INT PRIMARY KEY, code TEXT UNIQUE)",
    "CREATE TABLE coded (id INT PRIMARY KEY, code TEXT REFERENCES code (code))",
    "INSERT INTO item VALUES (1, 'a', 1, true), (2, 'b', 2, false), (3, 'c', NULL, false), \
     (4, NULL, 4, false)",
    "INSERT INTO pair VALUES (1, '2026-01-01', 1), (1, '2026-01-02', 2), (2, '2026-01-01', 3)",
    "INSERT INTO bare VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    "INSERT INTO tree VALUES (1, NULL), (2, 1)",
    "INSERT INTO code VALUES (1, 'p'), (2, 'q')",
    "INSERT INTO coded VALUES (1, 'p')",
];
const DUMPED: &[(&str, &[&str])] = &[
    ("item", &["id", "name", "n", "top"]),
    ("pair", &["a", "b", "n"]),
    ("bare", &["a", "b"]),
    ("tree", &["id", "above"]),
    ("code", &["id", "code"]),
    ("coded", &["id", "code"]),
];

/// Statements that plain SQL takes, with the same answer, the same rows, and those before after the
/// rollback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_different_rows_are_undone() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    for sql in [
        // The statement behind WITH runs first, or two rows would be on top.
        "WITH u AS (UPDATE item SET top = true WHERE id = 2 RETURNING id) \
         UPDATE item SET top = false WHERE id <> 2 AND top",
        // The later query of WITH runs first.
        "WITH a AS (UPDATE item SET top = true WHERE id = 3), \
         b AS (UPDATE item SET top = false WHERE top) SELECT 1",
        "WITH a AS (UPDATE pair SET n = n + 1 WHERE a = 2 RETURNING a, n), \
         b AS (UPDATE pair AS x SET n = 0 FROM item i WHERE x.a = i.id AND x.b = '2026-01-02' \
         RETURNING x.n) SELECT a.n FROM a, b",
        "WITH d AS (DELETE FROM item WHERE name IS NULL RETURNING id), \
         e AS (DELETE FROM item USING pair p WHERE item.id = p.a AND p.n = 3) \
         UPDATE item SET n = 7 WHERE id IN (1, 3)",
        // A condition that reads what another write has returned.
        "WITH d AS (DELETE FROM item WHERE id = 4 RETURNING id) \
         UPDATE item SET n = 9 WHERE id = (SELECT max(id) - 1 FROM d)",
        "WITH d AS (DELETE FROM pair WHERE a = 1 AND b = '2026-01-01') \
         UPDATE pair SET n = 5 WHERE a = 1 AND b = '2026-01-02'",
        // Rows without a key.
        "WITH d AS (DELETE FROM bare WHERE a = 1) DELETE FROM bare WHERE b IS NULL",
        // A key and a unique value that a DELETE has freed.
        "WITH i AS (INSERT INTO item VALUES (1, 'a', 0, true)) DELETE FROM item WHERE id = 1",
        "WITH d AS (DELETE FROM item WHERE id = 1 RETURNING *) \
         INSERT INTO item SELECT id, upper(name), n, top FROM d RETURNING id",
        "WITH i AS (INSERT INTO item VALUES (9, 'a', 0, true)), \
         u AS (UPDATE item SET name = 'z', top = false WHERE id = 1) SELECT 1",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

/// The statement fails as it fails without images.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_taken_are_refused_by_the_database() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    for sql in [
        "WITH a AS (UPDATE item SET top = false WHERE top) \
         UPDATE item SET top = true WHERE id = 2",
        "WITH a AS (DELETE FROM item WHERE id = 1) INSERT INTO item VALUES (1, 'q', 0, false)",
        "WITH a AS (DELETE FROM item WHERE id = 1), \
         b AS (INSERT INTO item VALUES (1, 'q', 0, false)) SELECT 1",
        "WITH u AS (UPDATE item SET name = 'z' WHERE id = 1) \
         INSERT INTO item VALUES (9, 'a', 0, false)",
    ] {
        let mut plain = stage.pool.begin().await.unwrap();
        let refused = sqlx::query(AssertSqlSafe(sql)).execute(&mut *plain).await.unwrap_err();
        plain.rollback().await.unwrap();
        let expected = refused.into_database_error().unwrap();
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        let refused = refused.into_database_error().unwrap_or_else(|| panic!("{sql}"));
        assert_eq!(refused.code(), expected.code(), "{sql}");
        stage.roll_back(global).await;
    }
}

/// Which of two writes has a row, their order decides: the statement is refused when it has run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_meet_are_refused() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let before = stage.dump("item", DUMPED[0].1).await;
    for sql in [
        "WITH a AS (UPDATE item SET n = 8 WHERE id = 1) UPDATE item SET n = 9 WHERE top",
        "WITH a AS (UPDATE pair SET n = 8 WHERE a = 2), \
         b AS (DELETE FROM pair WHERE n = 2), \
         c AS (UPDATE pair SET n = 9 WHERE n = 3 RETURNING n) SELECT n FROM c",
        "WITH a AS (DELETE FROM item WHERE id < 3 RETURNING id) \
         DELETE FROM item USING pair p WHERE item.id = p.a + 1",
        "WITH a AS (DELETE FROM pair WHERE a = 1) UPDATE pair SET n = 0 WHERE b = '2026-01-02'",
        "WITH a AS (DELETE FROM bare WHERE a = 1) DELETE FROM bare WHERE b = 'x'",
        "WITH a AS (DELETE FROM item WHERE id = 2 RETURNING id) \
         UPDATE item SET n = 0 WHERE id IN (SELECT id FROM a)",
    ] {
        let global = stage.begin().await;
        let mut local = global.scope(stage.resource.begin()).await.unwrap();
        let refused = Postgres::run(&mut local, sql).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-WRITE-IN-WITH", "{sql}");
        assert!(refused.to_string().contains("have chosen the same row"), "{sql}: {refused}");
        assert!(local.commit().await.is_err(), "{sql} has no undo item");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("item", DUMPED[0].1).await, before, "{sql}");
    }
}

/// Writes of which the statement itself cannot tell are refused before it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_may_meet_unseen_are_refused() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let global = stage.begin().await;
    for (sql, why) in [
        (
            "WITH a AS (UPDATE item SET n = 1 WHERE random() < 0.5) DELETE FROM item WHERE id = 3",
            "cannot be asked again",
        ),
        (
            "WITH a AS (DELETE FROM item WHERE id = (SELECT id FROM item LIMIT 1)) \
             DELETE FROM item WHERE id = 3",
            "cannot be asked again",
        ),
        (
            "WITH q AS NOT MATERIALIZED (SELECT id FROM item LIMIT 1), \
             a AS (DELETE FROM item WHERE id IN (SELECT id FROM q)) DELETE FROM item WHERE id = 3",
            "NOT MATERIALIZED",
        ),
        (
            "WITH RECURSIVE a AS (DELETE FROM item WHERE id = 4) DELETE FROM item WHERE id = 3",
            "RECURSIVE",
        ),
        (
            "WITH a AS (INSERT INTO item VALUES (3, 'c', 0, false) ON CONFLICT DO NOTHING) \
             DELETE FROM item WHERE id = 3",
            "may meet",
        ),
        // One after the other is undone backwards, but here they take turns.
        (
            "WITH a AS (UPDATE item SET name = name || '1' WHERE id < 3 RETURNING id) \
             UPDATE item SET name = name || '2' WHERE id IN (SELECT id + 2 FROM a)",
            "may meet",
        ),
        // Rows of the table may refer to each other.
        (
            "WITH a AS (INSERT INTO tree VALUES (3, 4)) INSERT INTO tree VALUES (4, NULL)",
            "in no order",
        ),
        // A row refers to the value that one takes away and the other gives.
        (
            "WITH i AS (INSERT INTO code VALUES (3, 'p')) DELETE FROM code WHERE id = 1",
            "in no order",
        ),
        (
            "WITH u AS (UPDATE code SET code = 'p' WHERE id = 2) \
             UPDATE code SET code = 'r' WHERE id = 1",
            "in no order",
        ),
        // The old value is there only without the row that refers to the new one, and the other way
        // around.
        (
            "WITH a AS (UPDATE code SET code = 'r' WHERE id = 1) UPDATE coded SET code = 'r'",
            "in no order",
        ),
        (
            "WITH item AS (DELETE FROM pair RETURNING a) UPDATE item SET n = 0 WHERE id = 1",
            "has the name of a table",
        ),
    ] {
        let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&error), "HF-AT-WRITE-IN-WITH", "{sql}");
        assert!(error.to_string().contains(why), "{sql}: {error}");
    }
    stage.roll_back(global).await;
}
