//! The programs that the recipes quote, run at a coordinator in this process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../examples/exactly_once.rs"]
#[expect(dead_code, reason = "`main` is for people")]
mod exactly_once;
#[path = "../examples/hot_stock.rs"]
#[expect(dead_code, reason = "`main` is for people")]
mod hot_stock;
#[path = "../examples/nightly_job.rs"]
#[expect(dead_code, reason = "`main` is for people")]
mod nightly_job;
mod tc;
#[path = "../examples/wait_for_person.rs"]
#[expect(dead_code, reason = "`main` is for people")]
mod wait_for_person;

use std::time::Duration;

use handfast::Handfast;
use handfast::saga::SagaStatus;
use handfast_locks::{LockError, Locks, ReleaseOutcome};
use nightly_job::Night;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tc::Tc;
use tempfile::TempDir;

async fn database() -> (TempDir, SqlitePool) {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteConnectOptions::new().filename(folder.path().join("recipe.db"));
    let pool = SqlitePool::connect_with(file.create_if_missing(true)).await.unwrap();
    (folder, pool)
}

async fn stage() -> (Tc, Handfast, TempDir, SqlitePool) {
    let tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint()).await.unwrap();
    let (folder, pool) = database().await;
    (tc, handfast, folder, pool)
}

#[tokio::test]
async fn an_event_that_is_delivered_twice_takes_effect_once() {
    let (_folder, pool) = database().await;
    let (deliveries, payments) = exactly_once::run(&pool).await.unwrap();
    assert!(deliveries >= 6);
    let expected = [("1", 500), ("2", 700), ("3", 900)].map(|(it, cents)| (it.to_owned(), cents));
    assert_eq!(payments, expected);
}

#[tokio::test]
async fn one_node_writes_the_report_and_a_late_one_cannot() {
    let (_tc, handfast, _folder, pool) = stage().await;
    handfast.migrate(&pool).await.unwrap();
    sqlx::query(nightly_job::TABLE).execute(&pool).await.unwrap();
    let locks = Locks::over(handfast.locks()).lease(Duration::from_secs(30)).start().unwrap();
    let first = locks.lock("nightly-report/1").await.unwrap();
    let (name, token) = (first.name().clone(), first.fencing_token());
    assert_eq!(nightly_job::run(&handfast, &pool, "1").await.unwrap(), Night::Busy);
    nightly_job::write_chapter(&first, &pool, "1", 1).await.unwrap();
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(nightly_job::run(&handfast, &pool, "1").await.unwrap(), Night::Written);

    // A process that was stopped in the middle goes on: its token is refused by the database.
    let mut local = pool.begin().await.unwrap();
    let late = handfast_locks::fencing::claim(&mut local, &name, token).await.unwrap_err();
    assert!(matches!(late, LockError::Stale { .. }), "{late}");
    local.rollback().await.unwrap();
    let chapters = "SELECT count(*) FROM chapter WHERE day = '1'";
    let chapters: i64 = sqlx::query_scalar(chapters).fetch_one(&pool).await.unwrap();
    assert_eq!(chapters, 3);
}

#[tokio::test]
async fn each_unit_is_sold_once() {
    let (_tc, handfast, _folder, pool) = stage().await;
    assert_eq!(hot_stock::run(&handfast, &pool).await.unwrap(), (8, 8));
    let left: i64 =
        sqlx::query_scalar("SELECT sum(units) FROM stock").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn an_expense_waits_for_a_person() {
    let (_tc, handfast, _folder, pool) = stage().await;
    wait_for_person::take_part(&handfast, &pool).await.unwrap();
    let budget = async || {
        let budget = sqlx::query_as::<_, (i64, i64)>("SELECT free, paid FROM budget");
        budget.fetch_one(&pool).await.unwrap()
    };
    for (key, is_approved, status, left) in [
        ("1", true, SagaStatus::Completed, (200, 300)),
        ("2", false, SagaStatus::Compensated, (200, 300)),
    ] {
        let cents = if is_approved { 300 } else { 100 };
        let xid = wait_for_person::ask(&handfast, key, cents).await.unwrap();
        let saga = handfast.saga(&xid);
        let answered = if is_approved {
            saga.signal("approval", &"Ada").await
        } else {
            saga.cancel("not approved by Ada").await
        };
        answered.unwrap();
        let report = saga.ended(Duration::from_secs(30)).await.unwrap();
        assert_eq!(report.status(), status, "{}", report.cause());
        assert_eq!(budget().await, left);
    }
}
