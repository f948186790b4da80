//! Rows that a REPLACE gave each other's unique values. The undo wrote them back one after the
//! other, of which each was in the way of the next.

use sqlx::{MySql, Sqlite};

use crate::at::{Stage, TestDatabase};

async fn exchanged_values_come_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE slot (id INTEGER NOT NULL PRIMARY KEY, n INTEGER UNIQUE, v INTEGER)",
        "INSERT INTO slot VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3)",
    ])
    .await;
    for sql in [
        "REPLACE INTO slot VALUES (1, 20, 7), (2, 10, 8)",
        "REPLACE INTO slot VALUES (1, 20, 7), (2, 30, 8), (3, 10, 9)",
        "REPLACE INTO slot VALUES (1, 40, 7)",
    ] {
        stage.check_undone("slot", &["id", "n", "v"], &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_mysql_come_back() {
    exchanged_values_come_back::<MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sqlite_come_back() {
    exchanged_values_come_back::<Sqlite>().await;
}
