//! Triggers that fire when a statement is undone.

use handfast::{AtResource, GlobalStatus};
use sqlx::{Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_delete_is_not_undone_past_an_insert_trigger,
    an_insert_is_not_undone_past_a_delete_trigger,
    an_upsert_is_not_undone_past_a_delete_trigger,
    a_trusted_trigger_may_fire_on_undo,
);

/// Two rows, and a trigger on one event that records each row in another table.
async fn audited<DB: TestDatabase>(event: &str) -> Stage<DB> {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE note (id INTEGER NOT NULL PRIMARY KEY, v INTEGER)",
        "CREATE TABLE heard (n INTEGER)",
        "INSERT INTO note VALUES (1, 1), (2, 2)",
    ])
    .await;
    let (statement, row) = ("INSERT INTO heard VALUES (1)", format!("AFTER {event} ON note"));
    let setup = match DB::NAME_IN_TESTS {
        "postgres" => vec![
            format!(
                "CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN {statement}; RETURN NULL; END $$"
            ),
            format!("CREATE TRIGGER hears {row} FOR EACH ROW EXECUTE FUNCTION hear()"),
        ],
        "mysql" => vec![format!("CREATE TRIGGER hears {row} FOR EACH ROW {statement}")],
        _ => vec![format!("CREATE TRIGGER hears {row} BEGIN {statement}; END")],
    };
    for sql in setup {
        DB::raw(&stage.pool, &sql).await.unwrap();
    }
    stage
}

/// Checks that a statement is refused with the reason, and that the table and the log are
/// unchanged.
async fn refuse<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) {
    let before = stage.dump("note", &["id", "v"]).await;
    let global = stage.begin().await;
    let written = stage.try_branch(&global, &[sql]).await;
    stage.roll_back(global).await;
    let heard = stage.value("SELECT COUNT(*) FROM heard").await;
    assert_eq!(heard.as_deref(), Some("0"), "{sql} and its undo write nowhere else");
    assert_eq!(stage.dump("note", &["id", "v"]).await, before, "{sql}");
    let refused = written.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-TRIGGER", "{sql}");
    let text = refused.to_string();
    assert!(text.contains("trigger hears would fire when the statement is undone"), "{text}");
}

/// The undo of the DELETE was an INSERT, and the audit table had an additional row after the
/// rollback.
async fn a_delete_is_not_undone_past_an_insert_trigger<DB: TestDatabase>() {
    let stage = audited::<DB>("INSERT").await;
    refuse(&stage, "DELETE FROM note WHERE id = 1").await;
    stage.check_undone("note", &["id", "v"], &["UPDATE note SET v = 7 WHERE id = 1"]).await;
}

async fn an_insert_is_not_undone_past_a_delete_trigger<DB: TestDatabase>() {
    let stage = audited::<DB>("DELETE").await;
    refuse(&stage, "INSERT INTO note VALUES (5, 5)").await;
    stage.check_undone("note", &["id", "v"], &["UPDATE note SET v = 7 WHERE id = 1"]).await;
}

async fn an_upsert_is_not_undone_past_a_delete_trigger<DB: TestDatabase>() {
    let stage = audited::<DB>("DELETE").await;
    let clauses: &[&str] = match DB::NAME_IN_TESTS {
        "mysql" => &["ON DUPLICATE KEY UPDATE v = 9"],
        _ => &["ON CONFLICT (id) DO UPDATE SET v = 9", "ON CONFLICT DO NOTHING"],
    };
    for clause in clauses {
        refuse(&stage, &format!("INSERT INTO note VALUES (5, 5) {clause}")).await;
    }
}

async fn a_trusted_trigger_may_fire_on_undo<DB: TestDatabase>() {
    let stage = audited::<DB>("INSERT").await;
    let trusted = stage.handfast.at(stage.pool.clone()).trust_trigger("hears").await.unwrap();
    let before = stage.dump("note", &["id", "v"]).await;
    let global = stage.begin().await;
    delete(&trusted, &global).await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("note", &["id", "v"]).await, before);
}

async fn delete<DB: TestDatabase>(resource: &AtResource<DB>, global: &handfast::Global) {
    let deleted = DB::run_alone(resource, "DELETE FROM note WHERE id = 1");
    assert_eq!(global.scope(deleted).await.unwrap(), 1);
}

/// A REPLACE is undone by a DELETE and an INSERT, whose triggers would fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_is_not_undone_past_a_trigger() {
    for event in ["INSERT", "UPDATE", "DELETE"] {
        let stage = audited::<Sqlite>(event).await;
        let global = stage.begin().await;
        let written = stage.try_branch(&global, &["REPLACE INTO note VALUES (1, 5)"]).await;
        stage.roll_back(global).await;
        assert_eq!(code(&written.unwrap_err()), "HF-AT-TRIGGER", "{event}");
    }
}

/// With a trusted trigger, every column counts as one that the database changes along. The undo of
/// the second statement wrote them all, and with them what another program had written to the
/// column of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dirty_write_is_seen_past_a_later_statement() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE seat (id INTEGER PRIMARY KEY, t TEXT, c INTEGER, stamp INTEGER)",
        "CREATE FUNCTION stamps() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.stamp := NEW.c * 7; RETURN NEW; END $$",
        "CREATE TRIGGER stamps BEFORE UPDATE ON seat FOR EACH ROW EXECUTE FUNCTION stamps()",
        "INSERT INTO seat VALUES (1, 'a', 1, 7)",
    ])
    .await;
    let resource = stage.handfast.at(stage.pool.clone()).trust_trigger("stamps").await.unwrap();
    let global = stage.begin().await;
    for sql in ["UPDATE seat SET t = 'b'", "UPDATE seat SET c = 2"] {
        global.scope(Postgres::run_alone(&resource, sql)).await.unwrap();
    }
    Postgres::raw(&stage.pool, "UPDATE seat SET t = 'zz'").await.unwrap();
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap_err();
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
    assert_eq!(stage.value("SELECT t FROM seat").await.as_deref(), Some("zz"));
}

/// RETURNING shows a row as it was before its AFTER triggers ran: the undo took their changes for a
/// dirty write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_after_trigger_is_no_dirty_write() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE seat (id INTEGER PRIMARY KEY, n INTEGER, stamp INTEGER)",
        "CREATE TRIGGER on_insert AFTER INSERT ON seat BEGIN \
         UPDATE seat SET stamp = NEW.n * 7 WHERE id = NEW.id; END",
        "CREATE TRIGGER on_update AFTER UPDATE OF n ON seat BEGIN \
         UPDATE seat SET stamp = NEW.n * 7 WHERE id = NEW.id; END",
        "INSERT INTO seat (id, n) VALUES (1, 1), (2, 2)",
    ])
    .await;
    let resource = stage.handfast.at(stage.pool.clone());
    let resource = resource.trust_trigger("on_insert").trust_trigger("on_update").await.unwrap();
    let columns = ["id", "n", "stamp"];
    let before = stage.dump("seat", &columns).await;
    for sql in [
        "INSERT INTO seat (n) VALUES (5)",
        "UPDATE seat SET n = n + 1",
        "INSERT INTO seat (id, n) VALUES (1, 5), (9, 5) ON CONFLICT (id) DO UPDATE SET n = 8",
        "REPLACE INTO seat (id, n) VALUES (1, 5), (9, 5)",
    ] {
        let global = stage.begin().await;
        let branch = async {
            let mut local = resource.begin().await?;
            Sqlite::run(&mut local, sql).await?;
            local.commit().await
        };
        global.scope(branch).await.unwrap();
        stage.roll_back(global).await;
        assert_eq!(stage.dump("seat", &columns).await, before, "{sql}");
    }
}
