//! Fences of finished branches are removed in batches. Others stay.

use std::time::Duration;

use handfast::fence::{Fence, purge};
use sqlx::Pool;

use crate::at::on_every_database;
use crate::model::{Call, STANDINGS, Standing};
use crate::subject::{Levels, Local, Subject, fence};

on_every_database!(only_old_final_rows_are_purged, a_purge_has_a_limit, purges_run_beside_fences);

const DAY: Duration = Duration::from_secs(86_400);

async fn only_old_final_rows_are_purged<DB: Levels>() {
    let local = Local::<DB>::at(DB::LEVELS[0]).await;
    for standing in STANDINGS {
        stand(&local, standing).await;
    }
    assert_eq!(purge(&local.pool, Duration::MAX, 100).await.unwrap(), 0);
    assert_eq!(purge(&local.pool, DAY, 100).await.unwrap(), 0, "they are young");
    age(&local.stage.pool, "created_at").await;
    assert_eq!(purge(&local.pool, DAY, 100).await.unwrap(), 0, "they have ended just now");
    age(&local.stage.pool, "modified_at").await;
    assert_eq!(purge(&local.pool, DAY, 100).await.unwrap(), 3);
    assert_eq!(statuses(&local).await, ["1"]);
}

async fn a_purge_has_a_limit<DB: Levels>() {
    let local = Local::<DB>::at(DB::LEVELS[0]).await;
    // More rows than one batch.
    let values = (0..1_203).map(|n| format!("('a:{n}', {n}, 'a', 3, '2020-01-01', '2020-01-01')"));
    let values = values.collect::<Vec<_>>().join(", ");
    let columns = "xid, branch_id, action, status, created_at, modified_at";
    let sql = format!("INSERT INTO branch_fence ({columns}) VALUES {values}");
    DB::raw(&local.stage.pool, &sql).await.unwrap();
    assert_eq!(purge(&local.pool, DAY, 2).await.unwrap(), 2);
    assert_eq!(purge(&local.pool, DAY, 1_001).await.unwrap(), 1_001);
    assert_eq!(purge(&local.pool, DAY, u64::MAX).await.unwrap(), 200);
    assert_eq!(statuses(&local).await, Vec::<String>::new());
}

/// Concurrent operations and purges, which remove all rows that they may.
async fn purges_run_beside_fences<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        let fences: Vec<Fence> = (0..40).map(|_| fence().1).collect();
        let operations = async {
            for fence in &fences {
                for operation in Standing::Cancelled.way() {
                    assert_eq!(local.run(fence, Call::of(*operation)).await.to_string(), "ran");
                }
            }
        };
        let purges = async {
            let mut removed = 0;
            while removed < 30 {
                removed += purge(&local.pool, Duration::ZERO, 10).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(operations, purges);
    }
}

async fn stand<DB: Levels>(local: &Local<DB>, standing: Standing) {
    let (_, fence) = fence();
    for operation in standing.way() {
        local.run(&fence, Call::of(*operation)).await;
    }
}

async fn age<DB: Levels>(pool: &Pool<DB>, column: &str) {
    let sql = format!("UPDATE branch_fence SET {column} = '2020-01-01 00:00:00.000'");
    DB::raw(pool, &sql).await.unwrap();
}

async fn statuses<DB: Levels>(local: &Local<DB>) -> Vec<String> {
    let sql = format!("SELECT CAST(status AS {}) FROM branch_fence ORDER BY status", DB::TEXT);
    let rows = DB::raw_rows(&local.stage.pool, &sql).await.unwrap();
    rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
}
