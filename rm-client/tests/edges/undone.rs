//! Triggers that no statement fires, but the statement that undoes it.

use handfast::AtResource;
use sqlx::{MySql, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_delete_is_not_undone_past_an_insert_trigger,
    an_insert_is_not_undone_past_a_delete_trigger,
    an_upsert_is_not_undone_past_a_delete_trigger,
    a_vouched_trigger_of_the_undo_may_fire,
);

/// Two rows, and a trigger on one event that notes each row in another table.
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

/// The statement is refused with a text that says why, and the table and the log stay as they are.
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

/// The undo of the DELETE was an INSERT, and the audit had a row more after the rollback.
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

async fn a_vouched_trigger_of_the_undo_may_fire<DB: TestDatabase>() {
    let stage = audited::<DB>("INSERT").await;
    let vouched = stage.handfast.at(stage.pool.clone()).trust_trigger("hears").await.unwrap();
    let before = stage.dump("note", &["id", "v"]).await;
    let global = stage.begin().await;
    delete(&vouched, &global).await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("note", &["id", "v"]).await, before);
}

async fn delete<DB: TestDatabase>(resource: &AtResource<DB>, global: &handfast::Global) {
    let deleted = DB::run_alone(resource, "DELETE FROM note WHERE id = 1");
    assert_eq!(global.scope(deleted).await.unwrap(), 1);
}

/// The row came back as (1, 999).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_does_not_come_back_as_a_trigger_makes_it() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE note (id INTEGER NOT NULL PRIMARY KEY, v INTEGER)",
        "CREATE TABLE heard (n INTEGER)",
        "INSERT INTO note VALUES (1, 1), (2, 2)",
        "CREATE TRIGGER hears BEFORE INSERT ON note FOR EACH ROW SET NEW.v = 999",
    ])
    .await;
    refuse(&stage, "DELETE FROM note WHERE id = 1").await;
}

/// A trigger of a DELETE and an INSERT, which is what a REPLACE is undone by.
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
