//! Transactions that read only rows that other globals have committed.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::Postgres;

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_committed_read_sees_no_dirty_row_of_any_table,
    a_refused_read_does_not_fail_later_statements,
);

const READ: &str = "HF-AT-LOCKING-READ";
const CHANGE: &str = "HF-AT-UNCHECKED-READ";

/// Locks were checked only for the table in FROM: a sub-select read rows that an undecided global
/// had written.
async fn a_committed_read_sees_no_dirty_row_of_any_table<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE client (id INTEGER PRIMARY KEY, active INTEGER)",
        "CREATE TABLE bill (id INTEGER PRIMARY KEY, client INTEGER)",
        "INSERT INTO client VALUES (1, 0)",
        "INSERT INTO bill VALUES (7, 1)",
    ])
    .await;
    let writer = stage.begin().await;
    stage.branch(&writer, &["UPDATE client SET active = 1 WHERE id = 1"]).await;
    for (refusal, sql) in [
        (READ, "SELECT id FROM bill WHERE client IN (SELECT id FROM client WHERE active = 1)"),
        (READ, "SELECT id, (SELECT active FROM client WHERE client.id = bill.client) FROM bill"),
        (
            READ,
            "WITH live AS (SELECT id FROM client WHERE active = 1) \
             SELECT id FROM bill WHERE client IN (SELECT id FROM live)",
        ),
        (CHANGE, "UPDATE bill SET client = (SELECT active FROM client WHERE id = 1)"),
        (CHANGE, "DELETE FROM bill WHERE client IN (SELECT id FROM client WHERE active = 1)"),
        (CHANGE, "INSERT INTO bill (id, client) SELECT id, active FROM client"),
    ] {
        let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
        let read = async {
            let mut local = stage.resource.begin().await?;
            DB::read(&mut local, sql).await
        };
        let refused = reader.scope(read).await.unwrap_err();
        assert_eq!(code(&refused), refusal, "{sql}");
        stage.roll_back(reader).await;
    }
    stage.roll_back(writer).await;
}

/// The rows of a refused read were checked again with each later statement, which had run by then
/// but was reported as failed.
async fn a_refused_read_does_not_fail_later_statements<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1), (2, 1)",
    ])
    .await;
    let writer = stage.begin().await;
    stage.branch(&writer, &["UPDATE stock SET n = 2 WHERE id = 1"]).await;
    let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
    let work = async {
        let mut local = stage.resource.begin().await?;
        let refused = DB::read(&mut local, "SELECT n FROM stock WHERE id = 1").await.unwrap_err();
        assert_eq!(code(&refused), "HF-TC-ROW-LOCKED");
        DB::run(&mut local, "UPDATE stock SET n = n + 1 WHERE id = 2").await?;
        local.commit().await
    };
    reader.scope(work).await.unwrap();
    stage.commit(reader).await;
    stage.roll_back(writer).await;
    let left = stage.dump("stock", &["n"]).await;
    assert_eq!(left, [[Some("1".to_owned())], [Some("2".to_owned())]]);
}

/// PostgreSQL cannot lock the rows of a read that returns several rows for one, and only the server
/// knows which functions do so. Its error is the same as for an outdated plan, which a repetition
/// would cure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlockable_committed_read_is_refused_once() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE member (id INTEGER PRIMARY KEY, tags TEXT[] NOT NULL)",
        "INSERT INTO member VALUES (1, '{a,b}')",
    ])
    .await;
    let global = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
    for sql in [
        "SELECT unnest(tags) FROM member WHERE id = 1",
        "SELECT CAST(id AS text) FROM member ORDER BY rank() OVER (ORDER BY id)",
    ] {
        let runs = AtomicU32::new(0);
        let read = stage.resource.transaction(async |mut local| {
            runs.fetch_add(1, Ordering::Relaxed);
            Postgres::read(&mut local, sql).await
        });
        let refused = global.scope(read).await.unwrap_err();
        assert_eq!((code(&refused).as_str(), runs.into_inner()), (READ, 1), "{sql}");
    }
    stage.commit(global).await;
}
