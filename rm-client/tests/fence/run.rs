//! Operations in local transactions of their own.

use handfast::fence::{FenceError, Fenced, Operation, Pass};
use sqlx::{AssertSqlSafe, Executor, MySql, Postgres};
use tokio::sync::oneshot;

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
        let work = fence.run(&local.pool, Operation::Try, async |_| Ok::<_, FenceError>("worked"));
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
    let ended = fence.run(&local.pool, Operation::Try, async |mut transaction| {
        let effect = effect_of(xid.as_str(), Operation::Try);
        transaction.execute(AssertSqlSafe(effect)).await.map_err(FenceError::from)?;
        let swallowed = transaction.execute("SELECT 1 / 0").await;
        assert!(swallowed.is_err());
        Ok::<_, Failure>(())
    });
    let Err(Failure::Fence(error)) = ended.await else { panic!("a failed transaction committed") };
    assert_eq!(error.code(), "HF-FENCE-DATABASE");
    let rows = "SELECT CAST(COUNT(*) AS text) FROM branch_fence";
    let rows = Postgres::raw_rows(&local.stage.pool, rows).await.unwrap();
    assert_eq!(rows, [[Some("0".to_owned())]]);
}

/// A deadlock rolls the whole local transaction back on MySQL. Work that went on after it ran
/// outside of a local transaction, COMMIT of nothing succeeded, and the try counted as done without
/// a fence.
#[tokio::test]
async fn work_that_swallows_a_deadlock_is_not_done() {
    let local = Local::<MySql>::at("READ COMMITTED").await;
    let seats = "CREATE TABLE seat (id INT NOT NULL PRIMARY KEY, taken INT NOT NULL)";
    MySql::raw(&local.pool, seats).await.unwrap();
    MySql::raw(&local.pool, "INSERT INTO seat VALUES (1, 0), (2, 0)").await.unwrap();
    let (locked, is_locked) = oneshot::channel::<()>();
    let mut rival = local.pool.begin().await.unwrap();
    // The server ends the transaction that has changed fewer rows.
    for id in 3..40 {
        let insert = format!("INSERT INTO seat VALUES ({id}, 0)");
        rival.execute(AssertSqlSafe(insert)).await.unwrap();
    }
    rival.execute("UPDATE seat SET taken = 2 WHERE id = 2").await.unwrap();
    let rival = tokio::spawn(async move {
        drop(is_locked.await);
        rival.execute("UPDATE seat SET taken = 2 WHERE id = 1").await.unwrap();
        rival.rollback().await.unwrap();
    });
    let (xid, fence) = fence();
    let mut locked = Some(locked);
    let ended = fence.run(&local.pool, Operation::Try, |mut transaction| {
        let effect = effect_of(xid.as_str(), Operation::Try);
        let locked = locked.take();
        async move {
            let update = transaction.execute("UPDATE seat SET taken = 1 WHERE id = 1");
            update.await.map_err(FenceError::from)?;
            drop(locked);
            let swallowed = transaction.execute("UPDATE seat SET taken = 1 WHERE id = 2").await;
            assert_eq!(FenceError::from(swallowed.unwrap_err()).code(), "HF-FENCE-CONFLICT");
            transaction.execute(AssertSqlSafe(effect)).await.map_err(FenceError::from)?;
            Ok::<_, Failure>(())
        }
    });
    let Err(Failure::Fence(error)) = ended.await else { panic!("a lost transaction committed") };
    assert_eq!(error.code(), "HF-FENCE-ENDED-EARLY");
    rival.await.unwrap();
    let rows = "SELECT CAST(COUNT(*) AS CHAR) FROM branch_fence";
    let rows = MySql::raw_rows(&local.stage.pool, rows).await.unwrap();
    assert_eq!(rows, [[Some("0".to_owned())]]);
    // The pool's connection is usable, and the operation can be repeated.
    let run = fence.run(&local.pool, Operation::Try, async |_| Ok::<_, Failure>(()));
    assert_eq!(run.await.unwrap(), Fenced::Ran(()));
}
