//! Transactions that are repeated, and those that are not, against a real coordinator.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use at::{Stage, TestDatabase, on_every_database};
use handfast::{Handfast, Retry, TransactionError, is_transient};
use handfast_test_services::EmbeddedCoordinator;
use sqlx::Sqlite;

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id INT NOT NULL PRIMARY KEY, amount BIGINT NOT NULL)",
    "INSERT INTO account VALUES (1, 0)",
];
const ADD: &str = "UPDATE account SET amount = amount + 1 WHERE id = 1";

/// A policy without long pauses.
fn quickly() -> Retry {
    Retry::new().back_off(Duration::from_millis(1), Duration::from_millis(5))
}

on_every_database!(a_lock_timeout_is_repeated_until_the_row_is_free);

/// The first attempt meets the row of an undecided global; it is committed before the second.
async fn a_lock_timeout_is_repeated_until_the_row_is_free<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(20));
    let impatient = impatient.await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &[ADD]).await;
    let (mut holder, runs) = (Some(holder), 0);
    let transaction = stage.handfast.transaction("add").retry(quickly());
    let (mut ran, resource) = (runs, &impatient);
    let ended = transaction.run(|tx| {
        ran += 1;
        let release = if ran == 2 { holder.take() } else { None };
        async move {
            assert!(tx.xid().is_some());
            if let Some(holder) = release {
                holder.commit().await.unwrap();
            }
            DB::run_alone(resource, ADD).await
        }
    });
    assert_eq!(ended.await.unwrap(), 1);
    assert_eq!(ran, 2);
    assert_eq!(stage.value("SELECT amount FROM account").await.as_deref(), Some("2"));
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("sold out")]
    SoldOut,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A reason that stays is not tried again, and one that is not known to pass is only if the caller
/// says so.
#[tokio::test]
async fn what_the_application_refuses_is_repeated_only_if_it_says_so() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let runs = AtomicU32::new(0);
    let refuse = async |_tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        sqlx::query(ADD).execute(&stage.resource).await?;
        Err::<(), _>(Failure::SoldOut)
    };
    let transaction = stage.handfast.transaction("add").retry(quickly().attempts_max(4));
    let ended = transaction.clone().run(refuse).await.unwrap_err();
    assert!(matches!(ended.application(), Some(Failure::SoldOut)), "{ended:?}");
    assert_eq!(runs.swap(0, Ordering::Relaxed), 1);
    let repeats = |error: &Failure| is_transient(error) || matches!(error, Failure::SoldOut);
    transaction.run_when(repeats, refuse).await.unwrap_err();
    assert_eq!(runs.into_inner(), 4);
    assert_eq!(stage.value("SELECT amount FROM account").await.as_deref(), Some("0"));
}

/// A row that stays locked is given up after as many attempts as the policy allows, and no attempt
/// begins after its time.
#[tokio::test]
async fn attempts_and_time_are_limited() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &[ADD]).await;
    let runs = AtomicU32::new(0);
    let add = async |_tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        sqlx::query(ADD).execute(&impatient).await
    };
    let transaction = stage.handfast.transaction("add");
    let policy = quickly().attempts_max(3);
    let error = transaction.clone().retry(policy.clone()).run(add).await.unwrap_err();
    assert!(is_transient(error.application().unwrap()), "{error}");
    assert_eq!(runs.swap(0, Ordering::Relaxed), 3);
    transaction.retry(policy.time_max(Duration::ZERO)).run(add).await.unwrap_err();
    assert_eq!(runs.swap(0, Ordering::Relaxed), 1);
    // Without a policy, once.
    stage.handfast.transaction("add").run(add).await.unwrap_err();
    assert_eq!(runs.into_inner(), 1);
    holder.rollback("test").await.unwrap();
}

/// The coordinator dies after the begin, which it does not record, so the first branch is refused.
#[tokio::test]
async fn a_global_that_the_coordinator_has_lost_is_repeated() {
    let mut coordinator = EmbeddedCoordinator::start().await;
    let handfast = Handfast::connect(coordinator.endpoint()).application("tests").await.unwrap();
    let (pool, _directory) = Sqlite::create().await;
    handfast.migrate(&pool).await.unwrap();
    for sql in ACCOUNT {
        Sqlite::raw(&pool, sql).await.unwrap();
    }
    let resource = handfast.at(pool.clone()).await.unwrap();
    let mut ran = 0;
    let (begun, has_begun) = tokio::sync::oneshot::channel::<()>();
    let (restarted, is_restarted) = tokio::sync::oneshot::channel::<()>();
    let mut first = Some((begun, is_restarted));
    let resource = &resource;
    let add = handfast.transaction("add").retry(quickly()).run(|_tx| {
        ran += 1;
        let first = first.take();
        async move {
            if let Some((begun, is_restarted)) = first {
                begun.send(()).unwrap();
                is_restarted.await.unwrap();
            }
            sqlx::query(ADD).execute(resource).await
        }
    });
    let restart = async {
        has_begun.await.unwrap();
        coordinator.kill().await;
        coordinator.restart().await;
        restarted.send(()).unwrap();
    };
    let (ended, ()) = tokio::join!(add, restart);
    ended.unwrap();
    assert_eq!(ran, 2);
    let amount = Sqlite::raw_rows(&pool, "SELECT CAST(amount AS text) FROM account").await;
    assert_eq!(amount.unwrap(), [[Some("1".to_owned())]]);
}

/// The one that began it decides, and it may repeat all of it.
#[tokio::test]
async fn a_joined_transaction_is_not_repeated() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let runs = AtomicU32::new(0);
    let inner = async |_tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        Err::<(), Failure>(Failure::SoldOut)
    };
    let outer = stage.handfast.transaction("outer").run(async |_tx| {
        let joined = stage.handfast.transaction("inner").retry(quickly());
        let ended = joined.run_when(|_| true, inner).await.unwrap_err();
        assert!(matches!(ended, TransactionError::Application(Failure::SoldOut)), "{ended:?}");
        Ok::<(), Failure>(())
    });
    outer.await.unwrap();
    assert_eq!(runs.into_inner(), 1);
}
