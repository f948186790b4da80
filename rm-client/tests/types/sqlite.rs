//! SQLite.

use sqlx::Sqlite;

use super::{keys, round_trip};
use crate::at::Stage;
use crate::columns::sqlite::{AFFINITIES, KEYS, STRICT};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_restored() {
    let stage = Stage::<Sqlite>::new(&[]).await;
    round_trip(&stage, "affinities", AFFINITIES, "").await;
    round_trip(&stage, "rowless", AFFINITIES, " WITHOUT ROWID").await;
    round_trip(&stage, "strict", STRICT, " STRICT").await;
    round_trip(&stage, "strict_rowless", STRICT, " STRICT, WITHOUT ROWID").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_of_key_names_its_row() {
    let stage = Stage::<Sqlite>::new(&[]).await;
    keys(&stage, "keyed", KEYS).await;
}
