//! Local transactions that are repeated because a global lock was in the way, and ways in which
//! that ends early: the rows of a branch are its own until its last attempt has ended, and no
//! longer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, pending};
use handfast::Global;
use handfast_test_services::until;
use tokio::sync::Notify;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, alone, branch};

const FIRST: &str = "UPDATE account SET cents = cents + 1 WHERE id = 1";
const SECOND: &str = "UPDATE account SET cents = cents + 1 WHERE id = 2";

on_every_database!(
    a_replay_keeps_its_rows_over_a_second_conflict,
    a_dropped_wait_takes_no_rows,
    a_dropped_replay_gives_up_its_rows,
    a_failed_replay_gives_up_its_rows,
    branches_are_undone_in_the_order_of_their_changes,
);

async fn until_waiting<DB: TestDatabase>(scene: &Scene<DB>, waiters: usize) {
    let wait = async || scene.coordinator.status().await.waiters == waiters;
    until("so many requests wait for a row", wait).await;
}

/// Regression: a second conflict was reported as the failure of the branch, whose rows went to the
/// next in the queue, and whose id was registered again.
async fn a_replay_keeps_its_rows_over_a_second_conflict<DB: TestDatabase>() {
    let scene = Scene::<DB>::patient().await;
    let resource = scene.resource().await;
    let (of_first, of_second) = (scene.begin().await, scene.begin().await);
    branch(&resource, &of_first, &[FIRST]).await.unwrap();
    branch(&resource, &of_second, &[SECOND]).await.unwrap();
    let (replayed, behind) = (scene.begin().await, scene.begin().await);
    let runs = AtomicU32::new(0);
    let work = resource.transaction(async |mut local| {
        let is_first = runs.fetch_add(1, Ordering::SeqCst) == 0;
        DB::run(&mut local, FIRST).await?;
        if is_first { Ok(0) } else { DB::run(&mut local, SECOND).await }
    });
    let in_queue = async {
        until_waiting(&scene, 1).await;
        behind.scope(alone(&resource, &[FIRST])).await.unwrap();
    };
    let play = async {
        until_waiting(&scene, 2).await;
        of_first.commit().await.unwrap();
        until("it is repeated", async || runs.load(Ordering::SeqCst) == 2).await;
        // The one behind it still waits, for the row that the replay was granted.
        until_waiting(&scene, 2).await;
        of_second.commit().await.unwrap();
    };
    let replay = async {
        replayed.scope(work).await.unwrap();
        replayed.commit().await.unwrap();
    };
    futures::join!(Box::pin(replay), Box::pin(in_queue), play);
    behind.commit().await.unwrap();
    assert_eq!(runs.into_inner(), 3);
    scene.until_finished().await;
    scene.assert_finished().await;
    assert_eq!((scene.bank.cents(1).await, scene.bank.cents(2).await), (1003, 1002));
}

/// Regression: a branch that had waited for its row kept the place of that registration among the
/// branches of its global. Another one changed the row before it, and both were undone in the wrong
/// order: to a value in between.
async fn branches_are_undone_in_the_order_of_their_changes<DB: TestDatabase>() {
    const MIRROR: &str = "UPDATE account SET cents = 5000 - cents WHERE id = 1";
    let scene = Scene::<DB>::patient().await;
    let resource = scene.resource().await;
    let (holder, both) = (scene.begin().await, scene.begin().await);
    branch(&resource, &holder, &[FIRST]).await.unwrap();
    let (runs, other_has_ended) = (AtomicU32::new(0), Notify::new());
    let work = resource.transaction(async |mut local| {
        if runs.fetch_add(1, Ordering::SeqCst) > 0 {
            other_has_ended.notified().await;
        }
        DB::run(&mut local, MIRROR).await
    });
    let play = async {
        until_waiting(&scene, 1).await;
        holder.commit().await.unwrap();
        until("it is repeated", async || runs.load(Ordering::SeqCst) == 2).await;
        both.scope(alone(&resource, &[MIRROR])).await.unwrap();
        assert_eq!(scene.bank.cents(1).await, 3999);
        other_has_ended.notify_one();
    };
    let (replayed, ()) = futures::join!(both.scope(work), play);
    replayed.unwrap();
    both.rollback("by the test").await.unwrap();
    assert_eq!(scene.bank.cents(1).await, 1001);
    scene.until_finished().await;
    scene.assert_finished().await;
}

/// The fate of the first repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    IsDropped,
    Fails,
}

/// Regression: the registration of a wait whose caller was gone was granted, and the rows stayed
/// locked until the global was decided.
async fn a_dropped_wait_takes_no_rows<DB: TestDatabase>() {
    let scene = Scene::<DB>::patient().await;
    let resource = scene.resource().await;
    let (holder, gone) = (scene.begin().await, scene.begin().await);
    branch(&resource, &holder, &[FIRST]).await.unwrap();
    let mut waiting = Box::pin(gone.scope(alone(&resource, &[FIRST])));
    tokio::select! {
        ended = &mut waiting => panic!("{ended:?}"),
        () = until_waiting(&scene, 1) => {}
    }
    drop(waiting);
    holder.commit().await.unwrap();
    take_at_once(&scene, gone).await;
}

/// Regression: the rows of a replay that was dropped in the closure stayed locked until the global
/// was decided.
async fn a_dropped_replay_gives_up_its_rows<DB: TestDatabase>() {
    end_a_replay::<DB>(Repetition::IsDropped).await;
}

async fn a_failed_replay_gives_up_its_rows<DB: TestDatabase>() {
    end_a_replay::<DB>(Repetition::Fails).await;
}

async fn end_a_replay<DB: TestDatabase>(repetition: Repetition) {
    let scene = Scene::<DB>::patient().await;
    let resource = scene.resource().await;
    let (holder, ended) = (scene.begin().await, scene.begin().await);
    branch(&resource, &holder, &[FIRST]).await.unwrap();
    let runs = AtomicU32::new(0);
    let work = resource.transaction(async |mut local| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        if run == 0 { DB::run(&mut local, FIRST).await } else { repeat(repetition).await }
    });
    let mut replay = Box::pin(ended.scope(work));
    tokio::select! {
        result = &mut replay => panic!("{result:?}"),
        () = until_waiting(&scene, 1) => {}
    }
    holder.commit().await.unwrap();
    tokio::select! {
        result = &mut replay => assert!(matches!(result, Err(sqlx::Error::RowNotFound))),
        () = until("it is repeated", async || runs.load(Ordering::SeqCst) == 2),
            if repetition == Repetition::IsDropped => {}
    }
    drop(replay);
    take_at_once(&scene, ended).await;
}

fn repeat(repetition: Repetition) -> BoxFuture<'static, Result<u64, sqlx::Error>> {
    match repetition {
        Repetition::IsDropped => pending().boxed(),
        Repetition::Fails => async { Err(sqlx::Error::RowNotFound) }.boxed(),
    }
}

/// Another global takes the row while the one whose branch has ended is undecided.
async fn take_at_once<DB: TestDatabase>(scene: &Scene<DB>, undecided: Global) {
    let impatient = scene.handfast.at(scene.bank.pool.clone());
    let impatient = impatient.lock_timeout(Duration::from_millis(1)).await.unwrap();
    let next = scene.begin().await;
    branch(&impatient, &next, &[FIRST]).await.unwrap();
    next.commit().await.unwrap();
    undecided.commit().await.unwrap();
    scene.until_finished().await;
    scene.assert_finished().await;
    assert_eq!(scene.bank.cents(1).await, 1002);
}
