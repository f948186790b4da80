//! A local transaction whose begin is cancelled before it is answered.

use futures::FutureExt;
use sqlx::pool::PoolOptions;

use crate::at::{Stage, TestDatabase, on_every_database};

on_every_database!(a_cancelled_begin_leaves_no_transaction_open);

/// The connection returned to the pool inside an open transaction, and its later users worked
/// within that.
async fn a_cancelled_begin_leaves_no_transaction_open<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&["CREATE TABLE stock (id INTEGER PRIMARY KEY)"]).await;
    let options = (*stage.pool.connect_options()).clone();
    let one = PoolOptions::<DB>::new().max_connections(1).test_before_acquire(false);
    let pool = one.connect_with(options).await.unwrap();
    let resource = stage.handfast.at(pool.clone()).await.unwrap();
    let global = stage.begin().await;
    for id in 1..=20 {
        // The BEGIN is under way by then, and in most cases not answered.
        if id % 2 == 0 {
            drop(resource.begin().now_or_never());
        } else {
            drop(global.scope(resource.begin()).now_or_never());
        }
        DB::raw(&pool, &format!("INSERT INTO stock VALUES ({id})")).await.unwrap();
        let kept = stage.value(&format!("SELECT id FROM stock WHERE id = {id}")).await;
        assert_eq!(kept, Some(id.to_string()), "others see it at once");
    }
    stage.roll_back(global).await;
}
