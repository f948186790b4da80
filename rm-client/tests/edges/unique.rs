//! Unique columns whose values move from row to row within one statement.

use sqlx::{Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, on_every_database};

const SEAT: &[&str] = &[
    "CREATE TABLE seat (id BIGINT NOT NULL PRIMARY KEY, place BIGINT NOT NULL UNIQUE, \
     a VARCHAR(9), b VARCHAR(9), UNIQUE (a, b))",
    "INSERT INTO seat VALUES (1, 2, 'x', '1'), (2, 3, 'x', '2'), (3, 4, 'x', NULL), (4, 5, 'x', NULL)",
];
const COLUMNS: &[&str] = &["id", "place", "a", "b"];

on_every_database!(moved_values_are_undone, values_moved_by_several_statements_are_undone);

/// Row 1 can go back to place 2 only when row 2 has left it.
async fn moved_values_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(SEAT).await;
    stage.check_undone("seat", COLUMNS, &["UPDATE seat SET place = place - 1"]).await;
}

async fn values_moved_by_several_statements_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(SEAT).await;
    let statements = [
        "UPDATE seat SET place = 9, b = '9' WHERE id = 1",
        "UPDATE seat SET place = 2, b = '1' WHERE id = 2",
        "DELETE FROM seat WHERE id = 4",
        "INSERT INTO seat VALUES (7, 5, 'x', '2')",
    ];
    stage.check_undone("seat", COLUMNS, &statements).await;
}

/// An upsert changes rows in the order of its VALUES, which its images do not record.
async fn values_moved_by_an_upsert_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(SEAT).await;
    let sql = "INSERT INTO seat (id, place, a, b) \
               VALUES (4, 6, 'x', '4'), (3, 5, 'x', '3'), (2, 4, 'y', '2'), (1, 3, 'x', '2'), \
                      (8, 2, 'x', '1') \
               ON CONFLICT (id) DO UPDATE SET place = excluded.place, a = excluded.a, b = excluded.b";
    stage.check_undone("seat", COLUMNS, &[sql]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_by_an_upsert_on_postgres() {
    values_moved_by_an_upsert_are_undone::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_by_an_upsert_on_sqlite() {
    values_moved_by_an_upsert_are_undone::<Sqlite>().await;
}
