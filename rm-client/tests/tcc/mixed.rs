//! Branches of several modes in one global: all of them commit, or none.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{AtResource, Global, GlobalStatus, XaDatabase, XaResource, XaTransaction};
use handfast_test_services::until;
use sqlx::{MySql, Postgres};

use crate::action::{Amount, LocalDatabase, ten_from};
use crate::at::{code, on_every_database};
use crate::scene::{DEBITED, Scene, TRIED, UNTOUCHED, debit};

on_every_database!(
    an_at_and_a_tcc_branch_commit,
    an_at_and_a_tcc_branch_roll_back,
    a_failed_try_rolls_the_other_branch_back
);

const CHANGE: &str = "UPDATE note SET body = 'changed' WHERE id = 1";

async fn change<DB: LocalDatabase>(resource: &AtResource<DB>, global: &Global) {
    let work = async {
        let mut local = resource.begin().await?;
        DB::run(&mut local, CHANGE).await?;
        local.commit().await
    };
    let changed = Box::pin(global.scope(work)).await;
    changed.unwrap_or_else(|error| panic!("{}", code(&error)));
}

async fn an_at_and_a_tcc_branch_commit<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&debits, &global, &ten_from(1)).await.unwrap();
    change(&notes, &global).await;
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (TRIED, "changed"));
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (DEBITED, "changed"));
    assert_eq!(scene.number("SELECT COUNT(*) FROM undo_log").await, 0);
    scene.assert_finished().await;
}

async fn an_at_and_a_tcc_branch_roll_back<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    change(&notes, &global).await;
    debit(&debits, &global, &ten_from(1)).await.unwrap();
    global.rollback("test").await.unwrap();
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    assert_eq!(scene.number("SELECT COUNT(*) FROM undo_log").await, 0);
    scene.assert_finished().await;
}

async fn a_failed_try_rolls_the_other_branch_back<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    change(&notes, &global).await;
    let too_much = Amount { cents: 1_001, ..ten_from(1) };
    let error = debit(&debits, &global, &too_much).await.unwrap_err();
    assert_eq!(error.code(), "HF-TCC-ACTION");
    global.rollback("the try failed").await.unwrap();
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    let status = scene.handfast.outcome(&xid).await.unwrap();
    assert!(matches!(status, GlobalStatus::RolledBack(_)), "{status}");
}

/// A database on which every mode works.
trait EveryMode: LocalDatabase + XaDatabase {
    fn write_xa<'q>(
        local: &'q mut XaTransaction<'_, Self>,
        sql: &'static str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>>;
}

macro_rules! every_mode {
    ($($database:ty),*) => { $(
        impl EveryMode for $database {
            fn write_xa<'q>(
                local: &'q mut XaTransaction<'_, Self>,
                sql: &'static str,
            ) -> BoxFuture<'q, Result<(), sqlx::Error>> {
                async move { sqlx::query(sql).execute(local).await.map(drop) }.boxed()
            }
        }
    )* };
}

every_mode!(Postgres, MySql);

async fn prepare<DB: EveryMode>(resource: &XaResource<DB>, global: &Global) {
    let work = async {
        let mut local: XaTransaction<'static, DB> = resource.begin().await?;
        DB::write_xa(&mut local, "UPDATE account SET cents = cents - 10 WHERE id = 3").await?;
        local.commit().await
    };
    Box::pin(global.scope(work)).await.unwrap();
}

async fn ledger<DB: EveryMode>(scene: &Scene<DB>) -> XaResource<DB> {
    // Prepared branches belong to the server, which tests share, so the node id is unique.
    let node = format!("n{}", &uuid::Uuid::new_v4().simple().to_string()[..16]);
    scene.handfast.xa(scene.pool.clone()).node(node).await.unwrap()
}

/// Runs an AT, a TCC and an XA branch of one global, which ends by the given decision.
async fn all_three<DB: EveryMode>(decision: Decision) {
    let scene = Scene::<DB>::new().await;
    let debits = scene.resource().await;
    let notes = scene.handfast.at(scene.pool.clone()).await.unwrap();
    let ledger = ledger(&scene).await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    change(&notes, &global).await;
    debit(&debits, &global, &ten_from(1)).await.unwrap();
    prepare(&ledger, &global).await;
    let accounts = match decision {
        Decision::Commit => {
            global.commit().await.unwrap();
            scene.until_committed(&xid).await;
            assert_eq!(scene.note().await, "changed");
            [DEBITED, DEBITED]
        }
        Decision::RollBack => {
            global.rollback("test").await.unwrap();
            assert_eq!(scene.note().await, "as it was");
            [UNTOUCHED, UNTOUCHED]
        }
    };
    assert_eq!([scene.account(1).await, scene.account(3).await], accounts);
    scene.assert_finished().await;
}

/// Regression: only branches in AT mode counted as open.
async fn a_last_branch_beside_a_try<DB: EveryMode>() {
    let scene = Scene::<DB>::new().await;
    let debits = scene.resource().await;
    let notes = scene.handfast.at(scene.pool.clone()).await.unwrap();
    let failed = scene.handfast.transaction("move").run(async |_tx| {
        scene.conduct.shut();
        let last = async {
            until("the try runs", async || scene.conduct.called() == ["try"]).await;
            DB::run_alone(&notes.last(), CHANGE).await.unwrap();
            scene.conduct.open();
        };
        let too_much = Amount { cents: 1_001, ..ten_from(1) };
        tokio::join!(debits.try_(&too_much), last).0
    });
    assert_eq!(failed.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    scene.assert_finished().await;
}

async fn a_last_branch_beside_an_open_xa_branch<DB: EveryMode>() {
    let scene = Scene::<DB>::new().await;
    let notes = scene.handfast.at(scene.pool.clone()).await.unwrap();
    let ledger = ledger(&scene).await;
    let failed = scene.handfast.transaction("move").run(async |_tx| {
        let mut open: XaTransaction<'static, DB> = ledger.begin().await?;
        DB::write_xa(&mut open, "UPDATE account SET cents = cents - 10 WHERE id = 3").await?;
        DB::run_alone(&notes.last(), CHANGE).await?;
        open.rollback().await?;
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    assert_eq!(failed.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    assert_eq!((scene.account(3).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    scene.assert_finished().await;
}

enum Decision {
    Commit,
    RollBack,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_modes_commit_on_postgres() {
    all_three::<Postgres>(Decision::Commit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_modes_roll_back_on_postgres() {
    all_three::<Postgres>(Decision::RollBack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_modes_commit_on_mysql() {
    all_three::<MySql>(Decision::Commit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_modes_roll_back_on_mysql() {
    all_three::<MySql>(Decision::RollBack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_branch_decides_nothing_beside_others_on_postgres() {
    a_last_branch_beside_a_try::<Postgres>().await;
    a_last_branch_beside_an_open_xa_branch::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_branch_decides_nothing_beside_others_on_mysql() {
    a_last_branch_beside_a_try::<MySql>().await;
    a_last_branch_beside_an_open_xa_branch::<MySql>().await;
}
