//! The program of `docs/recipes/sqlx.md`, against a real coordinator.

mod at;

#[path = "../examples/sqlx_habits.rs"]
#[expect(dead_code, reason = "its `main` connects by the environment")]
mod sqlx_habits;

use at::Stage;
use handfast_test_services::until;
use sqlx::Sqlite;

const TABLES: &[&str] = &[
    "CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER NOT NULL)",
    "CREATE TABLE attempt (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL)",
];

#[tokio::test]
async fn what_is_usual_with_sqlx_works_within_a_global() {
    let stage = Stage::<Sqlite>::new(TABLES).await;
    assert_eq!(sqlx_habits::run(&stage.handfast, &stage.resource).await.unwrap(), 3);
    let attempts = stage.dump("attempt", &["id", "taken"]).await;
    let text = |n: &str| Some(n.to_owned());
    assert_eq!(attempts, [["1", "0"], ["2", "2"], ["3", "1"]].map(|row| row.map(text).to_vec()));
    until("the undo rows are deleted", async || stage.undo_rows().await == 0).await;
}
