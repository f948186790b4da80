//! Sessions whose settings differ from the driver's.

use std::sync::atomic::{AtomicU32, Ordering};

use handfast::AtResource;
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, MySql, Pool, Postgres};
use tokio::sync::Barrier;

use crate::at::{Stage, TestDatabase, code};

const EVENT: &[&str] = &[
    "CREATE TABLE event (id BIGINT NOT NULL PRIMARY KEY, at TIMESTAMP(6) NULL, n BIGINT)",
    "SET time_zone = '+00:00'",
    "INSERT INTO event VALUES (1, '2026-06-01 12:00:00', 1), (2, '2026-06-01 13:00:00', 1)",
];

const EVENT_OF_POSTGRES: &[&str] = &[
    "CREATE TABLE event (id BIGINT NOT NULL PRIMARY KEY, n BIGINT)",
    "INSERT INTO event VALUES (1, 1), (2, 1)",
];

/// Opens a pool on the stage's database whose connections run a statement first.
async fn mysql_pool(stage: &Stage<MySql>, set: &'static str) -> Pool<MySql> {
    let options = stage.pool.connect_options().as_ref().clone();
    MySqlPoolOptions::new()
        .max_connections(2)
        .after_connect(move |connection: &mut MySqlConnection, _| {
            Box::pin(async move { connection.execute(set).await.map(drop) })
        })
        .connect_with(options)
        .await
        .unwrap()
}

/// The undo runs in another process than the change, with a session in another time zone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_are_restored_in_another_time_zone() {
    let stage = Stage::<MySql>::new(EVENT).await;
    let shown = ["id", "UNIX_TIMESTAMP(at)", "n"];
    let before = stage.dump("event", &shown).await;
    let elsewhere = mysql_pool(&stage, "SET time_zone = '+05:00'").await;
    let client =
        handfast::Handfast::connect(stage.tc.endpoint()).application("east").await.unwrap();
    let east = client.at(elsewhere.clone()).await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            for sql in [
                "UPDATE event SET at = '2026-07-01 00:00:00', n = 2 WHERE id = 1",
                "DELETE FROM event WHERE id = 2",
            ] {
                MySql::run_alone(&east, sql).await.unwrap();
            }
        })
        .await;
    drop((east, client));
    elsewhere.close().await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("event", &shown).await, before);
}

/// These settings would change where a text ends, and so the meaning of a statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_change_the_meaning_of_sql_are_refused() {
    let stage = Stage::<MySql>::new(&[]).await;
    for set in [
        "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')",
        "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')",
    ] {
        let pool = mysql_pool(&stage, set).await;
        let refused = stage.handfast.at(pool).await.unwrap_err();
        assert_eq!(refused.code(), "HF-AT-SESSION-SETTING", "{set}: {refused}");
    }

    let stage = Stage::<Postgres>::new(&[]).await;
    let options = stage.pool.connect_options().as_ref().clone();
    let options = options.options([("standard_conforming_strings", "off")]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let refused = stage.handfast.at(pool).await.unwrap_err();
    assert_eq!(refused.code(), "HF-AT-SESSION-SETTING", "{refused}");
}

/// On MariaDB a snapshot that is too old ends the whole transaction. Statements after it were
/// committed at once, without undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_after_a_server_side_rollback_are_refused() {
    let stage = Stage::<MySql>::new(EVENT).await;
    let pool = mysql_pool(&stage, "SET innodb_snapshot_isolation = ON").await;
    let resource: AtResource<MySql> = stage.handfast.at(pool).await.unwrap();
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = resource.begin().await.unwrap();
            MySql::read(&mut local, "SELECT CAST(n AS CHAR) FROM event").await.unwrap();
            MySql::raw(&stage.pool, "UPDATE event SET n = 9 WHERE id = 1").await.unwrap();
            MySql::run(&mut local, "UPDATE event SET n = 2 WHERE id = 1").await.unwrap_err();
            let after = MySql::run(&mut local, "UPDATE event SET n = 2 WHERE id = 2").await;
            assert_eq!(code(&after.unwrap_err()), "HF-AT-ENDED");
        })
        .await;
    let n = stage.value("SELECT n FROM event WHERE id = 2").await;
    assert_eq!(n.as_deref(), Some("1"));
    stage.roll_back(global).await;
}

/// The closure form repeats its reads and writes with a new snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_on_an_outdated_snapshot_is_repeated() {
    let stage = Stage::<MySql>::new(EVENT).await;
    let pool = mysql_pool(&stage, "SET innodb_snapshot_isolation = ON").await;
    let resource: AtResource<MySql> = stage.handfast.at(pool).await.unwrap();
    let (global, runs) = (stage.begin().await, AtomicU32::new(0));
    let work = resource.transaction(async |mut local| {
        MySql::read(&mut local, "SELECT CAST(n AS CHAR) FROM event").await?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            MySql::raw(&stage.pool, "UPDATE event SET n = 9 WHERE id = 1").await?;
        }
        MySql::run(&mut local, "UPDATE event SET n = n + 1 WHERE id = 1").await
    });
    global.scope(work).await.unwrap();
    stage.commit(global).await;
    assert_eq!(runs.into_inner(), 2);
    let n = stage.value("SELECT n FROM event WHERE id = 1").await;
    assert_eq!(n.as_deref(), Some("10"));
}

/// Each has read the row that the other writes, so one of the two COMMITs fails. Its branch is
/// reported to the coordinator as failed, and the next attempt is a branch of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_not_serializable_is_repeated() {
    let stage = Stage::<Postgres>::new(EVENT_OF_POSTGRES).await;
    let options = stage.pool.connect_options().as_ref().clone();
    let options = options.options([("default_transaction_isolation", "serializable")]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let resource: AtResource<Postgres> = stage.handfast.at(pool).await.unwrap();
    let both_have_written = Barrier::new(2);
    let copy = async |from: u32, to: u32| {
        let (global, runs) = (stage.begin().await, AtomicU32::new(0));
        let read = format!("SELECT n::text FROM event WHERE id = {from}");
        let work = resource.transaction(async |mut local| {
            let rows = Postgres::read(&mut local, &read).await?;
            let n = rows[0][0].clone().unwrap();
            let write = format!("UPDATE event SET n = {n} + 1 WHERE id = {to}");
            Postgres::run(&mut local, &write).await?;
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                both_have_written.wait().await;
            }
            Ok::<(), sqlx::Error>(())
        });
        global.scope(work).await.unwrap();
        stage.commit(global).await;
        runs.into_inner()
    };
    let runs = tokio::join!(copy(1, 2), copy(2, 1));
    assert!(runs.0 + runs.1 > 2, "neither COMMIT failed");
    let sum = stage.value("SELECT sum(n)::text FROM event").await;
    assert_eq!(sum.as_deref(), Some("5"), "one after the other they make 2 and 3");
}
