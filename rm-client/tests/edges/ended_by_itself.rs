//! A local transaction that SQLite ends by itself, as it does when the disk is full.

use sqlx::Sqlite;
use sqlx::pool::PoolOptions;

use crate::at::{Stage, TestDatabase};

/// sqlx goes on counting that transaction, and lets no other begin on the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_works_again_after_its_transaction_was_ended() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1)",
        "CREATE TRIGGER positive BEFORE UPDATE ON stock WHEN NEW.n < 0 \
         BEGIN SELECT RAISE(ROLLBACK, 'negative'); END",
    ])
    .await;
    let options = (*stage.pool.connect_options()).clone();
    let one = PoolOptions::<Sqlite>::new().max_connections(1);
    let pool = one.connect_with(options).await.unwrap();
    let resource = stage.handfast.at(pool).trust_trigger("positive").await.unwrap();
    let stock = async || stage.value("SELECT n FROM stock WHERE id = 1").await;
    let set_to = async |n: i64| {
        let mut local = resource.begin().await?;
        let sql = format!("UPDATE stock SET n = {n} WHERE id = 1");
        Sqlite::run(&mut local, &sql).await?;
        local.commit().await
    };

    let global = stage.begin().await;
    global.scope(set_to(5)).await.unwrap();
    let ended = global.scope(set_to(-1)).await.unwrap_err();
    assert!(ended.to_string().contains("negative"), "{ended}");
    // The pool has one connection.
    global.scope(set_to(7)).await.unwrap();
    assert_eq!(stock().await.as_deref(), Some("7"));
    stage.roll_back(global).await;
    assert_eq!(stock().await.as_deref(), Some("1"));
}
