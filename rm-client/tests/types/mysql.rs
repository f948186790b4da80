//! MySQL and MariaDB.

use sqlx::MySql;

use super::{keys, round_trip};
use crate::at::Stage;
use crate::columns::mysql::{KEYS, NUMBERS, OTHERS, TEXTS, TIMES};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_restored() {
    let stage = Stage::<MySql>::new(&[]).await;
    let families = [("numbers", NUMBERS), ("texts", TEXTS), ("times", TIMES), ("others", OTHERS)];
    for (name, columns) in families {
        round_trip(&stage, name, columns, "").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_of_key_names_its_row() {
    let stage = Stage::<MySql>::new(&[]).await;
    keys(&stage, "keyed", KEYS).await;
}
