//! MySQL and MariaDB: a connection that keeps no more prepared statements closes one for each
//! further text, and the call behind that waits.

use sqlx::MySql;

use super::warnings::Warnings;
use crate::at::{Stage, TestDatabase};

/// The number that the driver keeps unless the options of the pool say otherwise.
const KEPT: usize = 100;

#[tokio::test]
async fn a_connection_that_keeps_no_more_is_warned_of_once() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE item (id INT PRIMARY KEY, n INT NOT NULL)",
        "INSERT INTO item VALUES (1, 1)",
    ])
    .await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    // Runs a text of its own in each branch, until a warning comes.
    let change = async |resource, texts: std::ops::Range<usize>| {
        let mut tried = 0;
        for number in texts {
            let change = format!("UPDATE item SET n = {number} WHERE id = 1");
            let global = stage.begin().await;
            global.scope(MySql::run_alone(resource, &change)).await.unwrap();
            stage.commit(global).await;
            tried += 1;
            if warnings.seen() > 0 {
                break;
            }
        }
        tried
    };
    let options = (*stage.pool.connect_options()).clone().statement_cache_capacity(10 * KEPT);
    let roomy = sqlx::mysql::MySqlPoolOptions::new().max_connections(1).connect_with(options);
    let roomy = stage.handfast.at(roomy.await.unwrap()).await.unwrap();
    assert_eq!(change(&roomy, 0..2 * KEPT).await, 2 * KEPT, "it keeps all of them");
    let tried = change(&stage.resource, 1_000..1_000 + 2 * KEPT).await;
    assert!((KEPT / 2..2 * KEPT).contains(&tried), "warned of after {tried} texts");
    change(&stage.resource, 2_000..2_003).await;
    assert_eq!(warnings.seen(), 1, "once is enough");
}
