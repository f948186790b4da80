//! Fences of steps are settled when their saga has ended, and are purged later.

use std::time::Duration;

use handfast::Xid;
use handfast::fence::{Fence, FenceError, Fenced, Operation, purge};
use handfast::saga::{Saga, SagaStatus, SagaStep};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Pool, Postgres};

use crate::at::{Stage, on_every_database};
use crate::scene::{
    Behaviour, PATIENCE, Writes, assert_all_compensated, assert_all_done, five_steps, scene, start,
    take_part,
};
use crate::wired::{Wired, wire_to};

on_every_database!(
    fences_of_ended_sagas_are_purged,
    many_fences_are_settled_in_batches,
    settling_does_not_disturb_running_sagas,
);

const DAY: Duration = Duration::from_secs(86_400);

const LONG_AGO: &str = "'2020-01-01 00:00:00.000'";

const TRIED: i64 = 1;
const CONFIRMED: i64 = 2;
const CANCELLED: i64 = 3;
const BARRED: i64 = 4;

async fn fences_of_ended_sagas_are_purged<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let good = start(&stage, "good", five_steps("", Behaviour::Good)).await;
    assert_eq!(good.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
    let back = start(&stage, "back", five_steps("ship", Behaviour::Good).step(refusing())).await;
    assert_eq!(back.ended(PATIENCE).await.unwrap().status(), SagaStatus::NeedsOperator);
    let taken = start(&stage, "taken", five_steps("pay", Behaviour::Refuses)).await;
    assert_eq!(taken.ended(PATIENCE).await.unwrap().status(), SagaStatus::Compensated);
    // A branch of another mode, whose XID the coordinator does not know as a saga.
    let foreign: Xid = "127.0.0.1:1:7".parse().unwrap();
    let tried = Fence::new(&foreign, 1, "try").unwrap();
    run(&stage.pool, &tried, Operation::Try).await.unwrap();

    stage.handfast.settle_sagas(&stage.pool).await.unwrap();
    assert_eq!(standing(&stage, good.xid()).await, [CONFIRMED; 5]);
    // Two compensated steps, a harmless step that stays confirmed, and the pivot that barred
    // itself.
    let ends = [CANCELLED, CANCELLED, CONFIRMED, BARRED];
    assert_eq!(standing(&stage, taken.xid()).await, ends);
    assert_eq!(standing(&stage, back.xid()).await, [TRIED; 5], "it goes on one day");
    assert_eq!(standing(&stage, &foreign).await, [TRIED]);

    // Late calls find the recorded end: no action runs twice, and none is compensated.
    let reserve = Fence::new(good.xid(), 1, "reserve").unwrap();
    let late = run(&stage.pool, &reserve, Operation::Action).await.unwrap();
    assert_eq!(late, Fenced::AlreadyDone);
    let late = run(&stage.pool, &reserve, Operation::Compensation).await.unwrap_err();
    assert!(matches!(late, FenceError::Contradicted { .. }), "{late}");
    assert_all_done(&stage, "good").await;

    assert_eq!(purge(&stage.pool, DAY, u64::MAX).await.unwrap(), 0, "a call may be under way");
    age(&stage.pool, "created_at").await;
    assert_eq!(purge(&stage.pool, DAY, u64::MAX).await.unwrap(), 0, "the age is that of the end");
    age(&stage.pool, "modified_at").await;
    assert_eq!(purge(&stage.pool, DAY, u64::MAX).await.unwrap(), 9);
    assert_eq!(standing(&stage, back.xid()).await, [TRIED; 5]);
    assert_eq!(standing(&stage, &foreign).await, [TRIED]);
}

/// A step that is never done and never given up.
fn refusing() -> SagaStep {
    SagaStep::retriable("thank", "shop", "ship").input(&Behaviour::Refuses).takes("pay")
}

async fn many_fences_are_settled_in_batches<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let look = SagaStep::harmless("look", "shop", "check").input(&Behaviour::Good);
    let one = start(&stage, "one", Saga::new("one").step(look).step(SagaStep::signal("go"))).await;
    one.signal("go", &()).await.unwrap();
    assert_eq!(one.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
    // More steps of a saga that has ended, and some of another coordinator whose XID has the same
    // number.
    let (_, number) = one.xid().as_str().rsplit_once(':').unwrap();
    let values =
        (2..=700).map(|n| format!("('{}', {n}, 'a', 1, {LONG_AGO}, {LONG_AGO})", one.xid()));
    let others =
        (1..=300).map(|n| format!("('elsewhere:{number}', {n}, 'a', 1, {LONG_AGO}, {LONG_AGO})"));
    let values = Vec::from_iter(values.chain(others)).join(", ");
    let columns = "xid, branch_id, action, status, created_at, modified_at";
    let sql = format!("INSERT INTO branch_fence ({columns}) VALUES {values}");
    DB::raw(&stage.pool, &sql).await.unwrap();
    // Two settlings at the same time: a fence that one of them settles is left alone by the other.
    let both = tokio::join!(
        stage.handfast.settle_sagas(&stage.pool),
        stage.handfast.settle_sagas(&stage.pool),
    );
    both.0.unwrap();
    both.1.unwrap();
    assert_eq!(standing(&stage, one.xid()).await, [CONFIRMED; 700]);
    let elsewhere: Xid = format!("elsewhere:{number}").parse().unwrap();
    assert_eq!(standing(&stage, &elsewhere).await, [TRIED; 300]);
}

/// A step may be compensated, and its saga end, between reading its fence and settling it.
async fn settling_does_not_disturb_running_sagas<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let mut sagas = Vec::new();
    for n in 0..20 {
        let key = format!("{n}");
        let saga = start(&stage, &key, five_steps("pay", Behaviour::Refuses)).await;
        sagas.push((key, saga));
    }
    let all_end = async {
        for (key, saga) in &sagas {
            let report = saga.ended(PATIENCE).await.unwrap();
            assert_eq!(report.status(), SagaStatus::Compensated, "{key}");
            assert_all_compensated(&stage, key).await;
        }
    };
    let settling = async {
        loop {
            stage.handfast.settle_sagas(&stage.pool).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = all_end => {}
        () = settling => {}
    }
}

/// A database accepted the sweep's statement and never answered. No connection broke, and the
/// participant never swept again.
async fn fences_are_settled_after_a_silence<DB: Wired + Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let good = start(&stage, "good", five_steps("", Behaviour::Good)).await;
    assert_eq!(good.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
    let (wire, pool) = wire_to(&stage.pool, b"ORDER BY xid, branch_id").await;
    // The pool has one connection, so a sweep that is cut off must not keep it.
    let options = pool.connect_options().as_ref().clone();
    let pool = PoolOptions::<DB>::new().max_connections(1).connect_with(options).await.unwrap();
    let sweeper = stage.handfast.saga_participant("sweeper", pool);
    let sweeper = sweeper.settle_every(Duration::from_millis(1));
    sweeper.settle_max(Duration::from_secs(1)).register();
    until("a sweep begins", async || wire.is_silent()).await;
    wire.answer_newcomers();
    let settled = async || standing(&stage, good.xid()).await == [CONFIRMED; 5];
    until("a later sweep settles", settled).await;
}

#[tokio::test]
async fn fences_are_settled_after_a_silence_of_postgres() {
    fences_are_settled_after_a_silence::<Postgres>().await;
}

#[tokio::test]
async fn fences_are_settled_after_a_silence_of_mysql() {
    fences_are_settled_after_a_silence::<MySql>().await;
}

async fn run<DB: Writes>(
    pool: &Pool<DB>,
    fence: &Fence,
    operation: Operation,
) -> Result<Fenced<()>, FenceError> {
    fence.run(pool, operation, async |_| Ok(())).await
}

/// Returns the states of the branches of an XID, in order.
async fn standing<DB: Writes>(stage: &Stage<DB>, xid: &Xid) -> Vec<i64> {
    let sql = format!(
        "SELECT CAST(status AS {}) FROM branch_fence WHERE xid = '{xid}' ORDER BY branch_id",
        DB::TEXT
    );
    let rows = DB::raw_rows(&stage.pool, &sql).await.unwrap();
    rows.into_iter().map(|mut row| row.remove(0).unwrap().parse().unwrap()).collect()
}

async fn age<DB: Writes>(pool: &Pool<DB>, column: &str) {
    let sql = format!("UPDATE branch_fence SET {column} = {LONG_AGO}");
    DB::raw(pool, &sql).await.unwrap();
}
