//! The connection to the database breaks: before COMMIT, during COMMIT, or in phase two.

use std::time::Duration;

use handfast::{AtTransaction, EndError, RollbackCause, TransactionError};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};
use tokio::time::timeout;

use crate::at::{TestDatabase, code};
use crate::commit_wire::{CommitWire, Fault, Wired};
use crate::scene::{CHANGES, Scene, branch, roll_back, run_all};

/// A database whose connections a test can identify and kill.
trait Killable: Wired {
    const OWN_ID: &'static str;
    fn kill(id: &str) -> String;
}

impl Killable for Postgres {
    const OWN_ID: &'static str = "SELECT CAST(pg_backend_pid() AS text)";
    fn kill(id: &str) -> String {
        format!("SELECT pg_terminate_backend({id}, 60000)")
    }
}

impl Killable for MySql {
    const OWN_ID: &'static str = "SELECT CAST(CONNECTION_ID() AS char)";
    fn kill(id: &str) -> String {
        format!("KILL CONNECTION {id}")
    }
}

macro_rules! on_every_server {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::MySql>().await })* }
    };
}

on_every_server!(
    a_connection_killed_before_commit_fails_the_branch,
    a_closure_on_a_killed_connection_returns_its_own_error,
    a_lost_commit_is_reported_as_unknown,
    a_lost_answer_is_reported_as_unknown,
    a_branch_dropped_while_it_is_reported_is_reported,
    a_client_killed_before_its_report_is_undone,
    a_rollback_waits_for_an_unreachable_database,
    a_commit_waits_for_an_unreachable_database,
    a_rollback_beside_the_last_commit_is_not_certain,
);

async fn a_connection_killed_before_commit_fails_the_branch<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    // If the undo row were sent together with COMMIT, it would be unknown whether the connection
    // broke before COMMIT.
    let resource = scene.handfast.at(scene.bank.pool.clone()).compound_statements(false);
    let resource = resource.await.unwrap();
    let global = scene.begin().await;
    let work = async {
        let mut local: AtTransaction<'static, DB> = resource.begin().await.unwrap();
        run_all(&mut local, &CHANGES).await.unwrap();
        let id = DB::read(&mut local, DB::OWN_ID).await.unwrap()[0][0].clone().unwrap();
        DB::raw(&scene.bank.pool, &DB::kill(&id)).await.unwrap();
        local.commit().await
    };
    global.scope(work).await.unwrap_err();
    // The rest of the global is not affected by a branch that certainly did not commit.
    branch(&resource, &global, &["UPDATE account SET cents = 7 WHERE id = 2"]).await.unwrap();
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    let mut expected = before;
    expected[1][1] = Some("7".to_owned());
    scene.assert_clean(&expected, 0).await;
}

/// Regression: the error of the rollback on the lost connection took the place of the closure's.
async fn a_closure_on_a_killed_connection_returns_its_own_error<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let work = resource.try_transaction(async |mut local| {
        run_all(&mut local, &CHANGES).await?;
        let id = DB::read(&mut local, DB::OWN_ID).await?[0][0].clone().unwrap();
        DB::raw(&scene.bank.pool, &DB::kill(&id)).await?;
        Err::<(), _>(anyhow::anyhow!("out of stock"))
    });
    let error = global.scope(work).await.unwrap_err();
    assert_eq!(error.to_string(), "out of stock");
    global.commit().await.unwrap();
    scene.assert_clean(&before, 0).await;
}

async fn a_lost_commit_is_reported_as_unknown<DB: Killable>() {
    an_unknown_commit_only_rolls_back::<DB>(Fault::LoseCommit).await;
}

async fn a_lost_answer_is_reported_as_unknown<DB: Killable>() {
    an_unknown_commit_only_rolls_back::<DB>(Fault::LoseAnswer).await;
}

async fn an_unknown_commit_only_rolls_back<DB: Killable>(fault: Fault) {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap();
    let global = scene.begin().await;
    wire.set(fault);
    let error = branch(&resource, &global, &CHANGES).await.unwrap_err();
    assert!(wire.has_broken(), "COMMIT has passed the wire");
    assert_eq!(code(&error), "HF-AT-COMMIT-UNKNOWN");
    // An application that ignores the error cannot commit.
    let error = global.commit().await.unwrap_err();
    assert!(is_branch_unknown(&error), "{error:?}");
    scene.assert_clean(&before, 0).await;
}

/// Regression: the report of a COMMIT without an answer that had not left yet went with the future
/// that waited for it, and the global committed.
async fn a_branch_dropped_while_it_is_reported_is_reported<DB: Killable>() {
    let mut scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap();
    let global = scene.begin().await;
    wire.set(Fault::Hold);
    let mut work = Box::pin(branch(&resource, &global, &CHANGES));
    until("COMMIT", async || {
        assert!(futures::poll!(&mut work).is_pending());
        wire.has_broken()
    })
    .await;
    scene.coordinator.kill().await;
    wire.set(Fault::Down);
    // The loss is noticed meanwhile, or the branch is dropped during COMMIT, which is reported too.
    let ended = timeout(Duration::from_millis(300), &mut work).await;
    assert!(ended.is_err(), "there is no coordinator to report to");
    drop(work);
    wire.set(Fault::None);
    scene.coordinator.restart().await;
    let error = global.commit().await.unwrap_err();
    assert!(is_branch_unknown(&error), "{error:?}");
    scene.assert_clean(&before, 0).await;
}

/// Regression: code beside the last branch asked for a rollback while its COMMIT was under way, and
/// was told that nothing of the global would stay.
async fn a_rollback_beside_the_last_commit_is_not_certain<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap().last();
    let global = scene.begin().await;
    wire.set(Fault::Hold);
    let mut work = Box::pin(global.scope(async {
        let mut local = resource.begin().await?;
        for sql in CHANGES {
            DB::run(&mut local, sql).await?;
        }
        local.commit().await
    }));
    until("COMMIT", async || {
        assert!(futures::poll!(&mut work).is_pending());
        wire.has_broken()
    })
    .await;
    let told = global.rollback("by the test").await.unwrap_err();
    assert_eq!(told.code(), "HF-TM-UNKNOWN", "{told}");
}

/// The proxy's answer looks like that of a database that has rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_loses_the_server_leaves_a_commit_unknown() {
    an_unknown_commit_only_rolls_back::<Postgres>(Fault::LoseServer).await;
}

/// The call with the undo row and COMMIT can fail after it has committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_interrupted_after_it_took_effect_is_done() {
    let scene = Scene::<MySql>::new().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(MySql::open(url).await).await.unwrap();
    let global = scene.begin().await;
    wire.set(Fault::Interrupt);
    branch(&resource, &global, &CHANGES).await.unwrap();
    assert!(wire.has_broken(), "COMMIT has passed the wire");
    roll_back(global).await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

/// Regression: its ROLLBACK waited without a limit, and the pool lacked the connection for as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_answers_leaves_the_pool() {
    let scene = Scene::<MySql>::new().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let pool = PoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let resource = scene.handfast.at(pool.clone()).await.unwrap();
    let global = scene.begin().await;
    wire.set(Fault::Hold);
    let mut work = Box::pin(branch(&resource, &global, &CHANGES));
    until("COMMIT", async || {
        assert!(futures::poll!(&mut work).is_pending());
        wire.has_broken()
    })
    .await;
    drop(work);
    MySql::raw(&pool, "SELECT 1").await.unwrap();
    roll_back(global).await.unwrap().unwrap();
    scene.assert_clean(&before, 1).await;
}

fn is_branch_unknown(error: &EndError) -> bool {
    matches!(error, TransactionError::RolledBack { by: RollbackCause::BranchUnknown, .. })
}

async fn a_client_killed_before_its_report_is_undone<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    for (fault, guards) in [(Fault::LoseAnswer, 0), (Fault::LoseCommit, 1)] {
        let (wire, url) = CommitWire::to(&scene.bank.pool).await;
        let global = scene.begin().await;
        let mut client = scene.client(Some(global.xid()), &CHANGES);
        client.url = url;
        wire.set(fault);
        client.crash_at("before-phase-one-report").crashed().await;
        assert!(wire.has_broken(), "COMMIT has passed the wire");
        let rescuer = scene.rescuer().await;
        roll_back(global).await.unwrap().unwrap();
        scene.assert_clean(&before, guards).await;
        rescuer.leave().await;
    }
}

async fn a_rollback_waits_for_an_unreachable_database<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    wire.set(Fault::Down);
    let rolled_back = roll_back(global);
    let failing = scene.coordinator.until(xid.as_str(), |detail| {
        detail.branches.first().is_some_and(|branch| branch.attempts >= 3)
    });
    let failing = failing.await;
    assert!(failing.branches[0].last_failure.is_some());
    assert!(!failing.branches[0].rows.is_empty(), "its rows stay locked");
    wire.set(Fault::None);
    rolled_back.await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

async fn a_commit_waits_for_an_unreachable_database<DB: Killable>() {
    let scene = Scene::<DB>::new().await;
    let (wire, url) = CommitWire::to(&scene.bank.pool).await;
    let resource = scene.handfast.at(DB::open(url).await).await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    let after = scene.bank.accounts().await;
    wire.set(Fault::Down);
    global.commit().await.unwrap();
    let failing = scene.coordinator.until(xid.as_str(), |detail| {
        detail.branches.first().is_some_and(|branch| branch.attempts >= 3)
    });
    failing.await;
    assert_eq!(scene.bank.undo_rows().await, (1, 0));
    wire.set(Fault::None);
    scene.until_committed(&xid).await;
    scene.assert_clean(&after, 0).await;
}

/// SQLite has no connection to cut. Another writer blocks phase two instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phase_two_waits_for_a_locked_sqlite_file() {
    let scene = Scene::<Sqlite>::new().await;
    let before = scene.bank.accounts().await;
    let options = scene.bank.pool.connect_options().as_ref().clone();
    let options = options.busy_timeout(Duration::from_millis(20));
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let resource = scene.handfast.at(pool).await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    let writer = scene.bank.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let rolled_back = roll_back(global);
    let failing = scene.coordinator.until(xid.as_str(), |detail| {
        detail.branches.first().is_some_and(|branch| branch.attempts >= 3)
    });
    failing.await;
    writer.rollback().await.unwrap();
    rolled_back.await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

/// On SQLite a COMMIT that fails for a deferred constraint leaves the local transaction open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_client_killed_before_its_report_is_undone() {
    const CARD: &str = "CREATE TABLE card (id BIGINT NOT NULL PRIMARY KEY, account BIGINT NOT NULL \
         REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED)";
    let scene = Scene::<Sqlite>::new().await;
    Sqlite::raw(&scene.bank.pool, CARD).await.unwrap();
    let before = scene.bank.accounts().await;
    let statements = [CHANGES[0], "INSERT INTO card (id, account) VALUES (1, 99)"];

    let resource = scene.resource().await;
    let global = scene.begin().await;
    let error = branch(&resource, &global, &statements).await.unwrap_err();
    assert!(code(&error).contains("FOREIGN KEY constraint failed"), "{error:?}");
    // The failure is reported, so the global can go on without the branch.
    global.commit().await.unwrap();
    scene.assert_clean(&before, 0).await;

    let global = scene.begin().await;
    let client = scene.client(Some(global.xid()), &statements);
    client.crash_at("before-phase-one-report").crashed().await;
    roll_back(global).await.unwrap().unwrap();
    scene.assert_clean(&before, 1).await;
}
