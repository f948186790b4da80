//! Operations in local transactions of their own.

use futures::FutureExt;
use handfast::fence::{FenceError, Fenced, Operation, Pass};
use sqlx::{Executor, Postgres};

use crate::at::{TestDatabase, on_every_database};
use crate::model::Failure;
use crate::subject::{Levels, Local, effect_of, fence};

on_every_database!(the_value_of_the_work_is_returned, data_stored_by_a_try_reaches_its_confirm);

async fn data_stored_by_a_try_reaches_its_confirm<DB: Levels>() {
    let local = Local::<DB>::at(DB::LEVELS[0]).await;
    let (_, fence) = fence();
    let left = vec![0xff; 64 << 10];
    let mut trying = local.pool.begin().await.unwrap();
    let early = fence.leave(&mut trying, b"early").await.unwrap_err();
    assert_eq!(early.code(), "HF-FENCE-NOT-TRIED");
    assert_eq!(fence.enter(&mut trying, Operation::Try).await.unwrap(), Pass::Run);
    assert_eq!(fence.left(&mut trying).await.unwrap(), None);
    fence.leave(&mut trying, b"replaced").await.unwrap();
    fence.leave(&mut trying, &left).await.unwrap();
    let large = fence.leave(&mut trying, &[0; (64 << 10) + 1]).await.unwrap_err();
    assert_eq!(large.code(), "HF-FENCE-CONTEXT-TOO-LARGE");
    trying.commit().await.unwrap();
    let mut confirming = local.pool.begin().await.unwrap();
    assert_eq!(fence.enter(&mut confirming, Operation::Confirm).await.unwrap(), Pass::Run);
    assert_eq!(fence.left(&mut confirming).await.unwrap(), Some(left));
}

async fn the_value_of_the_work_is_returned<DB: Levels>() {
    let local = Local::<DB>::at(DB::LEVELS[0]).await;
    let (_, fence) = fence();
    let run = async || {
        let work = fence
            .run(&local.pool, Operation::Try, |_| async { Ok::<_, FenceError>("worked") }.boxed());
        work.await.unwrap()
    };
    assert_eq!(run().await, Fenced::Ran("worked"));
    assert_eq!(run().await, Fenced::AlreadyDone);
}

/// PostgreSQL answers the COMMIT of a failed transaction as if it had committed.
#[tokio::test]
async fn work_that_swallows_an_error_is_not_done() {
    let local = Local::<Postgres>::at("READ COMMITTED").await;
    let (xid, fence) = fence();
    let ended = fence.run(&local.pool, Operation::Try, |transaction| {
        let effect = effect_of(xid.as_str(), Operation::Try);
        async move {
            transaction.execute(sqlx::AssertSqlSafe(effect)).await.map_err(FenceError::from)?;
            let swallowed = transaction.execute("SELECT 1 / 0").await;
            assert!(swallowed.is_err());
            Ok::<_, Failure>(())
        }
        .boxed()
    });
    let Err(Failure::Fence(error)) = ended.await else { panic!("a failed transaction committed") };
    assert_eq!(error.code(), "HF-FENCE-DATABASE");
    let rows = "SELECT CAST(COUNT(*) AS text) FROM branch_fence";
    let rows = Postgres::raw_rows(&local.stage.pool, rows).await.unwrap();
    assert_eq!(rows, [[Some("0".to_owned())]]);
}
