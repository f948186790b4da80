//! PREPARE is refused, and phase two finds pooled sessions that are still in a transaction.

use std::time::Duration;

use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{MySql, PgPool, Postgres};

use crate::at::TestDatabase;
use crate::database::{XaTestDatabase, lone};
use crate::scene::{DEBIT, OTHER_DEBIT, Scene, branch};

const DEFERRED: &[&str] = &[
    "CREATE TABLE parent (id BIGINT PRIMARY KEY)",
    "CREATE TABLE child (parent BIGINT REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
];

/// PostgreSQL checks deferred constraints at PREPARE, and rolls back if one fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_refused_at_prepare_is_rolled_back_on_postgres() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    for sql in DEFERRED {
        Postgres::raw(&scene.bank.pool, sql).await.unwrap();
    }
    for (sql, expected) in [
        ("INSERT INTO child VALUES (7)", "23503"),
        ("CREATE TEMPORARY TABLE mine (id BIGINT)", "0A000"),
        // The transaction has no number before this statement.
        ("NOTIFY listeners", "0A000"),
    ] {
        let global = scene.begin().await;
        let error = branch(&resource, &global, sql).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some(expected));
        let xid = global.xid().clone();
        assert!(scene.coordinator.show(xid.as_str()).await.branches.is_empty(), "taken back");
        // The rest of the global is unaffected.
        branch(&resource, &global, OTHER_DEBIT).await.unwrap();
        global.rollback("test").await.unwrap();
        scene.assert_clean([1000, 1000]).await;
    }
}

/// The victim of a deadlock cannot be prepared (`XA_RBDEADLOCK`), even if the application ignores
/// the error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlocked_branch_of_mariadb_is_rolled_back() {
    let scene = Scene::<MySql>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let mut one = xid.scope(resource.begin()).await.unwrap();
    let mut other = xid.scope(resource.begin()).await.unwrap();
    MySql::run_xa(&mut one, DEBIT).await.unwrap();
    MySql::run_xa(&mut other, OTHER_DEBIT).await.unwrap();
    let (mine, yours) =
        tokio::join!(MySql::run_xa(&mut one, OTHER_DEBIT), MySql::run_xa(&mut other, DEBIT));
    let (victim, survivor) = if mine.is_err() { (one, other) } else { (other, one) };
    assert!(mine.is_err() != yours.is_err(), "{mine:?} {yours:?}");
    victim.commit().await.unwrap_err();
    survivor.commit().await.unwrap();
    assert_eq!(scene.coordinator.show(xid.as_str()).await.branches.len(), 1);
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 990]).await;
}

/// Pooled sessions are still in a branch or a transaction of the application: phase two gets
/// `XAER_RMFAIL` or `XAER_OUTSIDE`, and uses another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_left_half_done_does_not_stop_phase_two() {
    let scene = Scene::<MySql>::new().await;
    let mut cents = 1000;
    for begun in ["XA START 'mine'", "BEGIN; SELECT * FROM account"] {
        let options = scene.bank.pool.connect_options().as_ref().clone();
        let narrow = PoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let resource = scene.handfast.xa(narrow.clone()).node(&scene.node);
        let resource = resource.hold_limit(Duration::ZERO).await.unwrap();
        let global = scene.begin().await;
        let xid = global.xid().clone();
        branch(&resource, &global, DEBIT).await.unwrap();
        MySql::raw(&narrow, begun).await.unwrap();
        global.commit().await.unwrap();
        cents -= 10;
        scene.until_committed(&xid).await;
        scene.assert_clean([cents, 1000]).await;
    }
}

/// Regression: the error of the rollback on the lost connection took the place of the closure's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closure_on_a_lost_connection_returns_its_own_error() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let work = resource.try_transaction(async |mut local| {
        Postgres::run_xa(&mut local, DEBIT).await?;
        let ends_itself = "SELECT pg_terminate_backend(pg_backend_pid())";
        Postgres::run_xa(&mut local, ends_itself).await.unwrap_err();
        Err::<(), _>(anyhow::anyhow!("out of stock"))
    });
    let error = global.scope(work).await.unwrap_err();
    assert_eq!(error.to_string(), "out of stock");
    global.commit().await.unwrap();
    scene.assert_clean([1000, 1000]).await;
}

const SLOW_PREPARE: &[&str] = &[
    "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION slow()",
];

const WAITS: &str = "SELECT 'it waits' FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Makes PREPARE wait for as long as the connection lives.
async fn slow_prepare(scene: &Scene<Postgres>) -> PgPool {
    for sql in SLOW_PREPARE {
        Postgres::raw(&scene.bank.pool, sql).await.unwrap();
    }
    let lock = lone(&scene.bank.pool).await;
    Postgres::raw(&lock, "SELECT pg_advisory_lock(7)").await.unwrap();
    lock
}

/// Waits until PREPARE is under way.
async fn prepare_waits(scene: &Scene<Postgres>) {
    let waits = async || !Postgres::raw_rows(&scene.bank.pool, WAITS).await.unwrap().is_empty();
    until("PREPARE is under way", waits).await;
}

/// If `commit()` is dropped while PREPARE is under way, the outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_prepare_only_rolls_back() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    let lock = slow_prepare(&scene).await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let preparing = tokio::spawn(xid.clone().scope(async move {
        let mut local = resource.begin().await?;
        Postgres::run_xa(&mut local, DEBIT).await?;
        local.commit().await
    }));
    prepare_waits(&scene).await;
    preparing.abort();
    assert!(preparing.await.unwrap_err().is_cancelled());
    let refused = scene.coordinator.until(xid.as_str(), |detail| {
        detail.timeline.iter().any(|event| event.what.contains("local outcome unknown"))
    });
    refused.await;
    lock.close().await;
    let error = global.commit().await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-ROLLED-BACK", "{error}");
    scene.assert_clean([1000, 1000]).await;
}

/// The report is queued before a commit that follows at once, so the global never commits without
/// its branch.
#[tokio::test]
async fn a_commit_that_follows_a_dropped_prepare_only_rolls_back() {
    let scene = Scene::<Postgres>::new().await;
    let resource = scene.resource().await;
    let lock = slow_prepare(&scene).await;
    let global = scene.begin().await;
    let preparing = global.xid().clone().scope(async {
        let mut local = resource.begin().await?;
        Postgres::run_xa(&mut local, DEBIT).await?;
        local.commit().await
    });
    tokio::select! {
        prepared = Box::pin(preparing) => panic!("{prepared:?}"),
        () = prepare_waits(&scene) => {}
    }
    let (committed, ()) = futures::join!(global.commit(), lock.close());
    let error = committed.unwrap_err();
    assert_eq!(error.code(), "HF-TM-ROLLED-BACK", "{error}");
    scene.assert_clean([1000, 1000]).await;
}
