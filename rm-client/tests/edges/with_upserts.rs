//! PostgreSQL: ON CONFLICT DO UPDATE inside WITH and behind it.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Postgres, Row, Transaction};

use crate::at::{Stage, TestDatabase, TextRow, code};

const TABLES: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('low', 'high')",
    "CREATE TABLE link (id SERIAL PRIMARY KEY, url VARCHAR(20) NOT NULL UNIQUE, hits INT, \
     mood mood NOT NULL DEFAULT 'low', at TIMESTAMPTZ)",
    "CREATE UNIQUE INDEX link_lower ON link (lower(url))",
    "CREATE TABLE click (id INT PRIMARY KEY, link INT REFERENCES link, n INT)",
    "CREATE TABLE seat (a INT, b INT, n INT, PRIMARY KEY (a, b))",
    "CREATE TABLE tree (id INT PRIMARY KEY, above INT REFERENCES tree)",
    "INSERT INTO link VALUES (101, 'a', 1, 'high', '2026-01-02 03:04:05.678901+00'), \
     (102, 'B', NULL, 'low', NULL)",
    "INSERT INTO click VALUES (1, 101, 5), (2, 102, NULL)",
    "INSERT INTO seat VALUES (1, 1, 10), (1, 2, 20), (2, 1, 30)",
    "INSERT INTO tree VALUES (1, NULL)",
];
const DUMPED: &[(&str, &[&str])] = &[
    ("link", &["id", "url", "hits", "mood", "at"]),
    ("click", &["id", "link", "n"]),
    ("seat", &["a", "b", "n"]),
    ("tree", &["id", "above"]),
];

/// The rows of each table.
type Tables = Vec<Vec<TextRow>>;

pub(super) async fn dump(stage: &Stage<Postgres>, tables: &[(&str, &[&str])]) -> Tables {
    dump_in(&mut stage.pool.acquire().await.unwrap(), tables).await
}

async fn dump_in(connection: &mut PgConnection, tables: &[(&str, &[&str])]) -> Tables {
    let mut all = Vec::new();
    for (table, columns) in tables {
        let list: Vec<String> = columns.iter().map(|name| format!("{name}::text")).collect();
        let read = format!("SELECT {} FROM {table}", list.join(", "));
        let rows = sqlx::query(AssertSqlSafe(read)).fetch_all(&mut *connection).await.unwrap();
        let row = |row: &PgRow| (0..columns.len()).map(|at| row.get(at)).collect();
        let mut rows: Vec<TextRow> = rows.iter().map(row).collect();
        rows.sort();
        all.push(rows);
    }
    all
}

/// Runs a statement in a branch, compares its answer and the rows with those of plain SQL, and
/// rolls back.
pub(super) async fn like_plain(stage: &Stage<Postgres>, tables: &[(&str, &[&str])], sql: &str) {
    let before = dump(stage, tables).await;
    let mut plain = stage.pool.begin().await.unwrap();
    let counted = sqlx::query(AssertSqlSafe(sql)).execute(&mut *plain).await;
    let counted = counted.unwrap_or_else(|error| panic!("{sql}: {error}")).rows_affected();
    let expected = dump_in(&mut plain, tables).await;
    plain.rollback().await.unwrap();

    let global = stage.begin().await;
    let ours = global.scope(Postgres::run_alone(&stage.resource, sql)).await;
    assert_eq!(ours.unwrap_or_else(|error| panic!("{sql}: {error}")), counted, "{sql}");
    let written = dump(stage, tables).await;
    assert_eq!(written, expected, "{sql}");
    assert_ne!(written, before, "{sql} changes something");
    stage.roll_back(global).await;
    assert_eq!(dump(stage, tables).await, before, "{sql} is undone");
    assert_eq!(stage.undo_rows().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_in_with_are_undone() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    for sql in [
        // What it offers is new, or there.
        "WITH l AS (INSERT INTO link (id, url, mood) VALUES (7, 'x', 'high') \
         ON CONFLICT (url) DO UPDATE SET hits = 0 RETURNING id) \
         INSERT INTO click SELECT 9, id, 1 FROM l",
        "WITH l AS (INSERT INTO link (id, url, at) VALUES (7, 'a', NULL), (8, 'y', '2026-02-02') \
         ON CONFLICT (url) DO UPDATE SET at = excluded.at, mood = 'low' RETURNING id, url) \
         INSERT INTO click SELECT id, id, 1 FROM l RETURNING id",
        // A conflict by an expression.
        "WITH l AS (INSERT INTO link (id, url) VALUES (7, 'b') ON CONFLICT (lower(url)) \
         DO UPDATE SET hits = 3 RETURNING id) SELECT id FROM l",
        // Rows of a query that reads another write.
        "WITH l AS (INSERT INTO link (id, url) VALUES (1, 'z') RETURNING id), \
         s AS (INSERT INTO seat SELECT id, unnest(ARRAY[1, 7]), 0 FROM l \
         ON CONFLICT (a, b) DO UPDATE SET n = seat.n + 1 RETURNING a, b) \
         INSERT INTO click SELECT 10 + b, 1, b FROM s ON CONFLICT (id) DO UPDATE SET n = 0",
        // A row that is met and left alone.
        "WITH l AS (DELETE FROM click WHERE id = 1) \
         INSERT INTO seat VALUES (1, 1, 0), (1, 2, 0) ON CONFLICT (a, b) DO UPDATE SET n = 99 \
         WHERE seat.b = 2",
        // Deleted, updated and inserted rows of one table, all different ones.
        "WITH d AS (DELETE FROM seat WHERE a = 1 AND b <> ALL (ARRAY[1, 3])), \
         u AS (UPDATE seat SET n = 31 WHERE a = 2) \
         INSERT INTO seat VALUES (1, 1, 11), (1, 3, 13) \
         ON CONFLICT (a, b) DO UPDATE SET n = excluded.n",
        "WITH i AS (INSERT INTO seat VALUES (1, 1, 11), (3, 3, 13) \
         ON CONFLICT (a, b) DO UPDATE SET n = excluded.n RETURNING a, n), \
         d AS (DELETE FROM seat WHERE a = 2 RETURNING b) \
         SELECT i.a, d.b FROM i, d",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_that_meet_other_writes_are_refused() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let before = dump(&stage, DUMPED).await;
    let upsert = "INSERT INTO seat VALUES (1, 1, 0) ON CONFLICT (a, b) DO UPDATE SET n = 0";
    for (sql, why) in [
        (format!("WITH d AS (DELETE FROM seat WHERE a = 1) {upsert}"), "have chosen the same row"),
        (
            format!("WITH u AS (UPDATE seat SET n = 5 WHERE n = 10) {upsert}"),
            "have chosen the same row",
        ),
        (format!("WITH i AS (INSERT INTO seat VALUES (1, 9, 0)) {upsert}"), "may meet"),
        (format!("WITH i AS ({upsert}) {upsert}"), "may meet"),
        (
            "WITH u AS (UPDATE link SET url = 'q' WHERE id = 101) INSERT INTO link (id, url) \
             VALUES (7, 'a') ON CONFLICT (url) DO UPDATE SET hits = 0"
                .to_owned(),
            "may meet",
        ),
        (format!("WITH RECURSIVE d AS (DELETE FROM click) {upsert}"), "RECURSIVE"),
        (
            "WITH d AS (DELETE FROM click) INSERT INTO tree VALUES (1, 1) \
             ON CONFLICT (id) DO UPDATE SET above = excluded.above"
                .to_owned(),
            "in no order",
        ),
        (
            "WITH d AS (DELETE FROM click) INSERT INTO link (id, url) VALUES (7, 'a') \
             ON CONFLICT (url) DO UPDATE SET id = excluded.id"
                .to_owned(),
            "needs a read before it",
        ),
    ] {
        let global = stage.begin().await;
        let answer = stage.try_branch(&global, &[&sql]).await;
        let error = answer.expect_err(&sql);
        assert_eq!(code(&error), "HF-AT-WRITE-IN-WITH", "{sql}");
        assert!(error.to_string().contains(why), "{sql}: {error}");
        stage.roll_back(global).await;
    }
    assert_eq!(dump(&stage, DUMPED).await, before);
}

const WAITERS: &str = "SELECT COUNT(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Runs a text in a transaction and commits it, once another one waits for its locks. Returns what
/// its tables have then.
pub(super) async fn commit_when_waited_for(
    stage: &Stage<Postgres>,
    mut open: Transaction<'static, Postgres>,
    text: &'static str,
    tables: &[(&str, &[&str])],
) -> Tables {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while stage.value(WAITERS).await.as_deref() == Some("0") {
        looks.tick().await;
    }
    sqlx::raw_sql(text).execute(&mut *open).await.unwrap();
    let written = dump_in(&mut open, tables).await;
    open.commit().await.unwrap();
    written
}

/// Runs a statement in a branch while another transaction, in which `held` has run, holds what it
/// waits for; that one runs `then` and commits meanwhile.
async fn overtaken(
    stage: &Stage<Postgres>,
    sql: &str,
    held: &'static str,
    then: &'static str,
) -> Result<Tables, String> {
    let mut other = stage.pool.begin().await.unwrap();
    sqlx::raw_sql(held).execute(&mut *other).await.unwrap();
    let global = stage.begin().await;
    let overtake = commit_when_waited_for(stage, other, then, DUMPED);
    let statements = [sql];
    let (ours, committed) = tokio::join!(stage.try_branch(&global, &statements), overtake);
    let written = dump(stage, DUMPED).await;
    stage.roll_back(global).await;
    assert_eq!(dump(stage, DUMPED).await, committed, "{sql} is undone");
    ours.map(|()| written).map_err(|error| code(&error))
}

/// The statement sees what was committed before it began. ON CONFLICT sees more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_others_in_between_are_noticed() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let sql = "WITH c AS (UPDATE click SET n = 6 WHERE id = 1 RETURNING id) \
               INSERT INTO seat SELECT 5, id, 0 FROM c ON CONFLICT (a, b) DO UPDATE SET n = 0";
    let hold = "UPDATE click SET n = 7 WHERE id = 1";
    let insert = "INSERT INTO seat VALUES (5, 1, 50)";
    assert_eq!(overtaken(&stage, sql, hold, insert).await, Err("HF-AT-ROWS-DIFFER".to_owned()));
    // There it is met as any other row.
    let written = overtaken(&stage, sql, hold, "SELECT 1").await.unwrap();
    assert!(written[2].contains(&vec![Some("5".into()), Some("1".into()), Some("0".into())]));
    // The newest version of a row is the image.
    let sql = "WITH c AS (DELETE FROM click WHERE id = 2) INSERT INTO seat VALUES (1, 1, 0) \
               ON CONFLICT (a, b) DO UPDATE SET n = seat.n + 1";
    let hold = "UPDATE seat SET n = 500 WHERE b = 1 AND a = 1";
    let written = overtaken(&stage, sql, hold, "SELECT 1").await.unwrap();
    assert!(written[2].contains(&vec![Some("1".into()), Some("1".into()), Some("501".into())]));
    // A row that is gone meanwhile is inserted.
    let hold = "DELETE FROM seat WHERE b = 1 AND a = 1";
    let written = overtaken(&stage, sql, hold, "SELECT 1").await.unwrap();
    assert!(written[2].contains(&vec![Some("1".into()), Some("1".into()), Some("0".into())]));
}
