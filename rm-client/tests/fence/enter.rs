//! The fence in a local transaction that the caller began, with two transactions held open on
//! purpose.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use handfast::fence::{Fence, FenceError, Operation, Pass};
use sqlx::{MySql, Postgres, Transaction};

use crate::at::on_every_database;
use crate::subject::{Levels, Local, fence};

on_every_database!(work_and_fence_commit_or_roll_back_together, a_missing_table_is_named);

async fn work_and_fence_commit_or_roll_back_together<DB: Levels>() {
    let local = Local::<DB>::at(DB::LEVELS[0]).await;
    let (_, fence) = fence();
    let mut dropped = local.pool.begin().await.unwrap();
    assert_eq!(fence.enter(&mut dropped, Operation::Try).await.unwrap(), Pass::Run);
    dropped.rollback().await.unwrap();
    let mut kept = local.pool.begin().await.unwrap();
    assert_eq!(fence.enter(&mut kept, Operation::Try).await.unwrap(), Pass::Run);
    kept.commit().await.unwrap();
    let mut again = local.pool.begin().await.unwrap();
    assert_eq!(fence.enter(&mut again, Operation::Try).await.unwrap(), Pass::AlreadyDone);
}

async fn a_missing_table_is_named<DB: Levels>() {
    let (pool, _directory) = DB::create().await;
    let mut local = pool.begin().await.unwrap();
    let error = fence().1.enter(&mut local, Operation::Try).await.unwrap_err();
    assert_eq!(error.code(), "HF-FENCE-TABLE-MISSING");
    drop(local);
    let error = handfast::fence::purge(&pool, std::time::Duration::ZERO, 1).await.unwrap_err();
    assert_eq!(error.code(), "HF-FENCE-TABLE-MISSING");
}

/// Empty cancels of branches that are neighbours in the table, all open at the same time, and tries
/// between them: no transaction waits. With a read before the INSERT, MySQL's gap locks would make
/// this a deadlock at REPEATABLE READ.
async fn neighbours_do_not_wait<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        let fences: Vec<Fence> = (0..6).map(|_| fence().1).collect();
        let mut open: Vec<Transaction<'_, DB>> = Vec::new();
        for turn in 0..fences.len() {
            // In order from both ends towards the middle.
            let at = if turn % 2 == 0 { turn / 2 } else { fences.len() - 1 - turn / 2 };
            let operation = if turn % 3 == 2 { Operation::Try } else { Operation::Cancel };
            let mut transaction = local.pool.begin().await.unwrap();
            let pass = fences[at].enter(&mut transaction, operation).await.unwrap();
            let wanted = if operation == Operation::Try { Pass::Run } else { Pass::Empty };
            assert_eq!(pass, wanted, "{at} at {}", local.level);
            open.push(transaction);
        }
        for transaction in open {
            transaction.commit().await.unwrap();
        }
    }
}

/// Existing locked rows do not block branches that are inserted between them.
async fn newcomers_do_not_wait<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        let fences: Vec<Fence> = (0..9).map(|_| fence().1).collect();
        let (old, new): (Vec<_>, Vec<_>) =
            fences.iter().enumerate().partition(|(at, _)| at % 2 == 1);
        for (_, fence) in &old {
            let mut trying = local.pool.begin().await.unwrap();
            assert_eq!(fence.enter(&mut trying, Operation::Try).await.unwrap(), Pass::Run);
            trying.commit().await.unwrap();
        }
        let mut open: Vec<Transaction<'_, DB>> = Vec::new();
        let steps = [Operation::Confirm, Operation::Cancel, Operation::Try, Operation::Confirm];
        let passes = [Pass::Run, Pass::Run, Pass::AlreadyDone, Pass::Run];
        let held = old.iter().zip(steps.into_iter().zip(passes));
        let added = new.iter().map(|fence| (fence, (Operation::Try, Pass::Run)));
        for ((_, fence), (operation, wanted)) in held.chain(added) {
            let mut transaction = local.pool.begin().await.unwrap();
            let pass = fence.enter(&mut transaction, operation).await.unwrap();
            assert_eq!(pass, wanted, "{fence} at {}", local.level);
            open.push(transaction);
        }
    }
}

#[tokio::test]
async fn newcomers_do_not_wait_on_mysql() {
    newcomers_do_not_wait::<MySql>().await;
}

#[tokio::test]
async fn newcomers_do_not_wait_on_postgres() {
    newcomers_do_not_wait::<Postgres>().await;
}

#[tokio::test]
async fn neighbours_do_not_wait_on_mysql() {
    neighbours_do_not_wait::<MySql>().await;
}

#[tokio::test]
async fn neighbours_do_not_wait_on_postgres() {
    neighbours_do_not_wait::<Postgres>().await;
}

/// A cancel that waits for a try finds no row if the try rolls back, and finds the row if it
/// commits.
async fn a_cancel_waits_for_the_try<DB: Levels>(level: &'static str, commits: bool) -> Answer {
    let local = Local::<DB>::at(level).await;
    let (_, fence) = fence();
    let mut trying = local.pool.begin().await.unwrap();
    assert_eq!(fence.enter(&mut trying, Operation::Try).await.unwrap(), Pass::Run);
    let mut cancelling = local.pool.begin().await.unwrap();
    let mut waits = pin!(fence.enter(&mut cancelling, Operation::Cancel));
    // The statement is sent before the try ends, and cannot be answered before that.
    let polled = std::future::poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    if commits {
        trying.commit().await.unwrap()
    } else {
        trying.rollback().await.unwrap()
    }
    waits.await.map_err(|error: FenceError| error.code().to_owned())
}

type Answer = Result<Pass, String>;

#[tokio::test]
async fn a_cancel_waits_for_the_try_on_mysql() {
    for level in MySql::LEVELS {
        assert_eq!(a_cancel_waits_for_the_try::<MySql>(level, true).await, Ok(Pass::Run));
        assert_eq!(a_cancel_waits_for_the_try::<MySql>(level, false).await, Ok(Pass::Empty));
    }
}

#[tokio::test]
async fn a_cancel_waits_for_the_try_on_postgres() {
    for level in Postgres::LEVELS {
        // Above READ COMMITTED, the snapshot may be older than the try's commit.
        let answer = a_cancel_waits_for_the_try::<Postgres>(level, true).await;
        let overtaken = Err("HF-FENCE-CONFLICT".to_owned());
        let may_be_overtaken = *level != "READ COMMITTED";
        assert!(answer == Ok(Pass::Run) || may_be_overtaken && answer == overtaken, "{answer:?}");
        assert_eq!(a_cancel_waits_for_the_try::<Postgres>(level, false).await, Ok(Pass::Empty));
    }
}
