//! PostgreSQL: statements that are refused, and what their messages advise in their place. It does
//! the same, and is undone.

use sqlx::{AssertSqlSafe, Postgres};

use super::with_upserts::dump;
use crate::at::{Stage, TestDatabase, code};

const PEOPLE: &[&str] = &[
    "CREATE TABLE person (id INT PRIMARY KEY, name TEXT DEFAULT 'unnamed', age INT)",
    "CREATE VIEW adult AS SELECT id AS no, name AS called, age FROM person WHERE age >= 18",
    "ALTER VIEW adult ALTER called SET DEFAULT 'visitor'",
    "CREATE TABLE news (id INT PRIMARY KEY, name TEXT, age INT)",
    "INSERT INTO person VALUES (1, 'a', 20), (2, 'b', 10), (3, 'c', NULL), (4, 'd', 40)",
    "INSERT INTO news VALUES (1, 'A', 21), (2, NULL, NULL), (7, 'g', 70)",
];
const DUMPED: &[(&str, &[&str])] = &[("person", &["id", "name", "age"])];

/// Expects the refusal of a statement, and of the advised ones the same effect as of it without the
/// library.
async fn check(stage: &Stage<Postgres>, refused: &str, expected: &str, advised: &[&str]) {
    let before = dump(stage, DUMPED).await;
    let global = stage.begin().await;
    let error = stage.try_branch(&global, &[refused]).await.expect_err(refused);
    assert_eq!(code(&error), expected, "{refused}");
    stage.branch(&global, advised).await;
    let ours = dump(stage, DUMPED).await;
    stage.roll_back(global).await;
    assert_eq!(dump(stage, DUMPED).await, before, "{advised:?} are undone");
    assert_eq!(stage.undo_rows().await, 0);

    Postgres::raw(&stage.pool, "CREATE TABLE kept AS TABLE person").await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(refused)).execute(&stage.pool).await.unwrap();
    assert_eq!(ours, dump(stage, DUMPED).await, "{refused}");
    let back = "DELETE FROM person; INSERT INTO person TABLE kept; DROP TABLE kept";
    Postgres::raw(&stage.pool, back).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_a_view_is_written() {
    let stage = Stage::<Postgres>::new(PEOPLE).await;
    for (view, table) in [
        (
            "UPDATE adult SET called = 'x' WHERE no < 4",
            "UPDATE person SET name = 'x' WHERE id < 4 AND age >= 18",
        ),
        // A row may leave the view.
        ("UPDATE adult SET age = 9", "UPDATE person SET age = 9 WHERE age >= 18"),
        ("DELETE FROM adult WHERE no > 1", "DELETE FROM person WHERE id > 1 AND age >= 18"),
        // A view may have defaults of its own.
        (
            "INSERT INTO adult (no, age) VALUES (8, 80)",
            "INSERT INTO person (id, name, age) VALUES (8, 'visitor', 80)",
        ),
        (
            "SELECT called FROM adult WHERE no = 1 FOR UPDATE",
            "SELECT name FROM person WHERE id = 1 AND age >= 18 FOR UPDATE",
        ),
    ] {
        check(&stage, view, "HF-AT-NOT-A-TABLE", &[table]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_written_as_its_parts() {
    let stage = Stage::<Postgres>::new(PEOPLE).await;
    check(
        &stage,
        "MERGE INTO person p USING news n ON n.id = p.id \
         WHEN MATCHED AND n.name IS NULL THEN DELETE \
         WHEN MATCHED THEN UPDATE SET name = n.name, age = n.age \
         WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.name, n.age)",
        "HF-AT-MERGE",
        &[
            "UPDATE person p SET name = n.name, age = n.age FROM news n \
             WHERE n.id = p.id AND n.name IS NOT NULL",
            "DELETE FROM person p USING news n WHERE n.id = p.id AND n.name IS NULL",
            "INSERT INTO person SELECT * FROM news n WHERE n.name IS NOT NULL \
             AND NOT EXISTS (SELECT FROM person p WHERE p.id = n.id)",
        ],
    )
    .await;
}
