//! PostgreSQL: INSERT, UPDATE and DELETE inside WITH.

use sqlx::{AssertSqlSafe, Postgres, Row};

use crate::at::{Stage, TestDatabase, TextRow, code};

const TABLES: &[&str] = &[
    "CREATE TABLE parent (id SERIAL PRIMARY KEY, name TEXT UNIQUE)",
    "CREATE TABLE child (id SERIAL PRIMARY KEY, parent INT REFERENCES parent, n NUMERIC(8, 2), \
     at TIMESTAMPTZ NOT NULL DEFAULT '2026-01-02 03:04:05.678901+00', tags TEXT[])",
    "INSERT INTO parent (id, name) VALUES (101, 'a'), (102, 'b'), (103, NULL)",
    "INSERT INTO child (id, parent, n, tags) VALUES (201, 101, 1.50, '{x,NULL}'), \
     (202, 101, 2.00, NULL), (203, 102, NULL, '{}')",
];
const PARENT: &[&str] = &["id", "name"];
const CHILD: &[&str] = &["id", "parent", "n", "at", "tags"];

async fn both(stage: &Stage<Postgres>) -> (Vec<TextRow>, Vec<TextRow>) {
    (stage.dump("parent", PARENT).await, stage.dump("child", CHILD).await)
}

/// Runs a statement in a branch and rolls back; returns how many rows it counted and what it
/// returned in its first columns.
async fn undone(stage: &Stage<Postgres>, sql: &str, columns: usize) -> (u64, Vec<Vec<i32>>) {
    let before = both(stage).await;
    let global = stage.begin().await;
    let answer = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            local.savepoint("before").await?;
            let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
            let rows = query.fetch_all(&mut local).await?;
            // Once more for the count, on the same rows.
            local.rollback_to("before").await?;
            let counted = Postgres::run(&mut local, sql).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>((counted, rows))
        })
        .await;
    let (counted, rows) = answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_ne!(both(stage).await, before, "{sql} changes something");
    stage.roll_back(global).await;
    assert_eq!(both(stage).await, before, "{sql} is undone");
    assert_eq!(stage.undo_rows().await, 0);
    let values = |row: &sqlx::postgres::PgRow| (0..columns).map(|at| row.get(at)).collect();
    (counted, rows.iter().map(values).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_in_with_are_undone() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let sql = "WITH gone AS (DELETE FROM child WHERE n < 5 RETURNING id, parent AS p) \
               SELECT id, p FROM gone ORDER BY id DESC";
    assert_eq!(undone(&stage, sql, 2).await, (2, vec![vec![202, 101], vec![201, 101]]));
    // The child refers to the parent, which is deleted last.
    let sql = "WITH p AS (INSERT INTO parent (id, name) VALUES (7, 'new') RETURNING id) \
               INSERT INTO child (id, parent, n) SELECT 8, id, 3 FROM p RETURNING id, parent";
    assert_eq!(undone(&stage, sql, 2).await, (1, vec![vec![8, 7]]));
    let sql = "WITH p AS (INSERT INTO parent (name) VALUES ('x'), ('y') RETURNING id), \
               c AS (INSERT INTO child (parent) SELECT id FROM p) \
               UPDATE child SET parent = (SELECT MIN(id) FROM p) WHERE n IS NOT NULL";
    assert_eq!(undone(&stage, sql, 0).await.0, 2);
    // The parents come back before the children.
    let sql = "WITH c AS (DELETE FROM child WHERE parent = 101 RETURNING parent) \
               DELETE FROM parent USING c WHERE parent.id = c.parent RETURNING parent.id";
    assert_eq!(undone(&stage, sql, 1).await, (1, vec![vec![101]]));
    let sql = "WITH u AS (UPDATE child SET n = n + 1, tags = '{q}' WHERE parent = 101 \
               RETURNING *), \
               d AS (DELETE FROM parent WHERE name IS NULL) \
               SELECT id, parent FROM u UNION ALL SELECT 0, 0 ORDER BY 1";
    let rows = vec![vec![0, 0], vec![201, 101], vec![202, 101]];
    assert_eq!(undone(&stage, sql, 2).await, (3, rows));
    // A job queue, whose rows are chosen once.
    let sql = "WITH u AS (UPDATE child SET n = 9 WHERE id = (SELECT id FROM child ORDER BY id \
               LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id AS taken) SELECT taken FROM u";
    assert_eq!(undone(&stage, sql, 1).await, (1, vec![vec![201]]));
    // Nothing to return, and nothing to insert for one of the writes.
    let sql = "WITH d AS (DELETE FROM child WHERE id = 203), \
               i AS (INSERT INTO parent (id, name) VALUES (101, 'a') ON CONFLICT DO NOTHING) \
               SELECT 1 WHERE FALSE";
    assert_eq!(undone(&stage, sql, 1).await, (0, Vec::new()));
}

/// The rows of a write are held like those of a statement of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_written_in_with_are_locked() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let impatient = stage.handfast.at(stage.pool.clone());
    let impatient = impatient.lock_timeout(std::time::Duration::from_millis(1)).await.unwrap();
    let writer = stage.begin().await;
    let sql = "WITH u AS (UPDATE parent SET name = 'z' WHERE id = 102 RETURNING id) \
               UPDATE child SET n = 0 WHERE parent IN (SELECT id FROM u)";
    stage.branch(&writer, &[sql]).await;
    let other = stage.begin().await;
    for (sql, held) in [
        ("UPDATE parent SET name = 'q' WHERE id = 102", true),
        ("DELETE FROM child WHERE id = 203", true),
        ("DELETE FROM child WHERE id = 201", false),
    ] {
        let answer = other.scope(Postgres::run_alone(&impatient, sql)).await;
        match answer {
            Ok(_) => assert!(!held, "{sql}"),
            Err(error) => assert_eq!((code(&error).as_str(), held), ("HF-TC-ROW-LOCKED", true)),
        }
    }
    stage.roll_back(other).await;
    stage.roll_back(writer).await;
}

/// Each refusal, and its advice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_in_with_without_images_are_refused() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let global = stage.begin().await;
    for sql in [
        "WITH u AS (UPDATE child SET n = 1 RETURNING n + 1) SELECT * FROM u",
        "WITH p AS (INSERT INTO parent (name) VALUES ('x') RETURNING id), \
         d AS (DELETE FROM parent WHERE id = 103), i AS (INSERT INTO child (n) VALUES (1)) \
         UPDATE child SET parent = (SELECT id FROM p)",
        // Whether it inserts its row depends on what has run before it.
        "WITH a AS (INSERT INTO parent (id, name) VALUES (103, 'c') ON CONFLICT DO NOTHING) \
         DELETE FROM parent WHERE id = 103",
    ] {
        let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&error), "HF-AT-WRITE-IN-WITH", "{sql}");
    }
    stage.roll_back(global).await;
    let named = "WITH u AS (UPDATE child SET n = 1 RETURNING CAST(n + 1 AS INT) AS next) \
                 SELECT next FROM u";
    assert_eq!(undone(&stage, named, 1).await.1, vec![vec![2]; 3]);
}
