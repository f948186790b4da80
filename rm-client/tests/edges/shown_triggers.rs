//! Triggers whose body shows that they write their own row only: nothing has to be declared. What
//! they fill in comes back, or the statement is refused.

use handfast::GlobalStatus;
use handfast_core::Resolution;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_stamp_of_every_change_comes_back_or_is_refused,
    a_stamp_of_new_rows_comes_back,
    a_check_of_new_rows_is_passed,
    a_check_that_may_refuse_the_undo_refuses_the_statement,
    a_call_is_not_shown,
);

const COLUMNS: &[&str] = &["id", "v", "stamp"];

/// Rows with a stamp of 5, and a trigger on an event that does `body` in PL/pgSQL, and `own` on
/// MySQL, before the row is written, or on SQLite after it.
async fn staged<DB: TestDatabase>(event: &str, bodies: [&str; 3]) -> Stage<DB> {
    let [plpgsql, mysql, sqlite] = bodies;
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, v INTEGER, stamp INTEGER)",
        "INSERT INTO item VALUES (1, 1, 5), (2, 2, 5)",
    ])
    .await;
    let setup = match DB::NAME_IN_TESTS {
        "postgres" => vec![
            format!(
                "CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN {plpgsql}; RETURN NEW; END $$"
            ),
            format!(
                "CREATE TRIGGER owns BEFORE {event} ON item FOR EACH ROW EXECUTE FUNCTION own()"
            ),
        ],
        "mysql" => vec![format!("CREATE TRIGGER owns BEFORE {event} ON item FOR EACH ROW {mysql}")],
        _ => vec![format!("CREATE TRIGGER owns AFTER {event} ON item BEGIN {sqlite}; END")],
    };
    for sql in setup {
        DB::raw(&stage.pool, &sql).await.unwrap();
    }
    stage
}

async fn stamped<DB: TestDatabase>(event: &str) -> Stage<DB> {
    let sqlite = "UPDATE item SET stamp = 900 + v WHERE rowid = NEW.rowid";
    staged(event, ["NEW.stamp = 900 + NEW.v", "SET NEW.stamp = 900 + NEW.v", sqlite]).await
}

/// Runs a statement in a branch, which is refused for the reason.
async fn refuse<DB: TestDatabase>(stage: &Stage<DB>, sql: &str, reason: &str) {
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    stage.roll_back(global).await;
    assert_eq!(code(&refused), "HF-AT-TRIGGER", "{sql}");
    assert!(refused.to_string().contains(reason), "{refused}");
}

async fn a_stamp_of_every_change_comes_back_or_is_refused<DB: TestDatabase>() {
    let stage = stamped::<DB>("UPDATE").await;
    if DB::NAME_IN_TESTS == "mysql" {
        refuse(&stage, "UPDATE item SET v = 7", "would not come back").await;
    } else {
        let change = "UPDATE item SET v = v + 10";
        for statements in [&[change][..], &[change, "UPDATE item SET v = 0 WHERE id = 1"]] {
            stage.check_undone("item", COLUMNS, statements).await;
        }
    }
    stage.check_undone("item", COLUMNS, &["DELETE FROM item WHERE id = 1"]).await;
    stage.check_undone("item", COLUMNS, &["INSERT INTO item VALUES (3, 3, 3)"]).await;
    // The trigger fires as before.
    DB::raw(&stage.pool, "UPDATE item SET v = 8 WHERE id = 2").await.unwrap();
    assert_eq!(stage.value("SELECT stamp FROM item WHERE id = 2").await.as_deref(), Some("908"));
}

async fn a_stamp_of_new_rows_comes_back<DB: TestDatabase>() {
    let stage = stamped::<DB>("INSERT").await;
    for statement in
        ["DELETE FROM item", "UPDATE item SET v = 7", "INSERT INTO item VALUES (3, 3, 3)"]
    {
        stage.check_undone("item", COLUMNS, &[statement]).await;
    }
}

async fn checked<DB: TestDatabase>(event: &str) -> Stage<DB> {
    let plpgsql = "IF NEW.v < 0 THEN RAISE EXCEPTION 'below zero'; END IF";
    let mysql = "IF NEW.v < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'below'; END IF";
    let sqlite = "SELECT RAISE(ABORT, 'below zero') WHERE NEW.v < 0";
    staged(event, [plpgsql, mysql, sqlite]).await
}

async fn a_check_of_new_rows_is_passed<DB: TestDatabase>() {
    let stage = checked::<DB>("INSERT").await;
    stage.check_undone("item", COLUMNS, &["INSERT INTO item VALUES (3, 3, 3)"]).await;
    let global = stage.begin().await;
    let written = stage.try_branch(&global, &["INSERT INTO item VALUES (3, -3, 3)"]).await;
    assert!(written.unwrap_err().to_string().contains("below"));
    stage.roll_back(global).await;
}

async fn a_check_that_may_refuse_the_undo_refuses_the_statement<DB: TestDatabase>() {
    let stage = checked::<DB>("UPDATE").await;
    refuse(&stage, "UPDATE item SET v = 7", "may refuse that").await;
    stage.check_undone("item", COLUMNS, &["DELETE FROM item WHERE id = 1"]).await;
    let stage = checked::<DB>("INSERT").await;
    refuse(&stage, "DELETE FROM item WHERE id = 1", "may refuse that").await;
}

/// A function may write.
async fn a_call_is_not_shown<DB: TestDatabase>() {
    let other = "UPDATE item SET stamp = 9 WHERE id = 1";
    let bodies = ["NEW.stamp = nextval('own')", "SET NEW.stamp = LAST_INSERT_ID(9)", other];
    let stage = staged::<DB>("INSERT", bodies).await;
    refuse(&stage, "INSERT INTO item VALUES (3, 3, 3)", "may write unseen").await;
}

/// Without the right to pass triggers the stamp of the undo would stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_must_be_able_to_pass_triggers() {
    let mut stage = stamped::<Postgres>("UPDATE").await;
    let role = format!("clerk_{}", uuid::Uuid::new_v4().simple());
    for sql in [
        format!("CREATE ROLE {role} LOGIN"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
    ] {
        Postgres::raw(&stage.pool, &sql).await.unwrap();
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&role);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool.clone()).await.unwrap();
    refuse(&stage, "UPDATE item SET v = 7", "let the account switch triggers off").await;

    let grant = format!("GRANT SET ON PARAMETER session_replication_role TO {role}");
    Postgres::raw(&stage.pool, &grant).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    stage.check_undone("item", COLUMNS, &["UPDATE item SET v = 7"]).await;
}

/// A trigger that fires whatever the role is cannot be passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_always_fires_is_not_passed() {
    for always in ["ALWAYS", "REPLICA"] {
        let stage = stamped::<Postgres>("UPDATE").await;
        let enable = format!("ALTER TABLE item ENABLE {always} TRIGGER owns");
        Postgres::raw(&stage.pool, &enable).await.unwrap();
        refuse(&stage, "UPDATE item SET v = 7", "would not come back").await;
    }
}

/// A row that is written again in that role is not checked at COMMIT any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_a_deferrable_constraint_is_not_written_past_triggers() {
    for (constraint, passes) in [("UNIQUE (stamp, id)", true), ("UNIQUE (v) DEFERRABLE", false)] {
        let stage = stamped::<Postgres>("UPDATE").await;
        Postgres::raw(&stage.pool, &format!("ALTER TABLE item ADD {constraint}")).await.unwrap();
        let change = "UPDATE item SET v = v + 10";
        match passes {
            true => stage.check_undone("item", COLUMNS, &[change]).await,
            false => refuse(&stage, change, "would not come back").await,
        }
    }
}

/// In that role PostgreSQL checks no foreign key, so what refers to other rows is never written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_a_trigger_fills_in_is_refused() {
    let stage = stamped::<Postgres>("UPDATE").await;
    for sql in [
        "CREATE TABLE stamps (id INTEGER PRIMARY KEY)",
        "INSERT INTO stamps VALUES (5), (901)",
        "ALTER TABLE item ADD FOREIGN KEY (stamp) REFERENCES stamps",
    ] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    refuse(&stage, "UPDATE item SET v = 1 WHERE id = 1", "may write unseen").await;
}

/// The undo takes the triggers off and puts them on again: their texts and their order stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_triggers_of_sqlite_are_as_before() {
    let stage = stamped::<Sqlite>("UPDATE").await;
    let further = "CREATE TRIGGER \"main\".\"a second\" AFTER UPDATE OF v ON item WHEN NEW.v > 100 \
                   BEGIN UPDATE item SET stamp = stamp + 1 WHERE id = NEW.id; END";
    Sqlite::raw(&stage.pool, further).await.unwrap();
    let listed = "SELECT group_concat(name || sql) FROM \
                  (SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid)";
    let before = stage.value(listed).await;
    stage.check_undone("item", COLUMNS, &["UPDATE item SET v = v + 200"]).await;
    assert_eq!(stage.value(listed).await, before);
}

/// A stamp of new rows is an UPDATE on SQLite, which fires UPDATE triggers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_behind_a_stamp_is_seen() {
    let stage = stamped::<Sqlite>("INSERT").await;
    for sql in [
        "CREATE TABLE heard (n INT)",
        "CREATE TRIGGER audits AFTER UPDATE ON item BEGIN INSERT INTO heard VALUES (1); END",
    ] {
        Sqlite::raw(&stage.pool, sql).await.unwrap();
    }
    refuse(&stage, "INSERT INTO item VALUES (3, 3, 3)", "trigger audits may write unseen").await;
    refuse(&stage, "DELETE FROM item", "audits would fire when the statement is undone").await;
    let trusted = stage.handfast.at(stage.pool.clone()).trust_trigger("owns").await.unwrap();
    let global = stage.begin().await;
    let inserted = Sqlite::run_alone(&trusted, "INSERT INTO item VALUES (3, 3, 3)");
    assert_eq!(code(&global.scope(inserted).await.unwrap_err()), "HF-AT-TRIGGER");
    stage.roll_back(global).await;
}

/// The row would take a unique value from another one, which its own values do not find.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unique_value_that_a_trigger_fills_in_is_not_replaced() {
    let stage = stamped::<Sqlite>("INSERT").await;
    let index = "CREATE UNIQUE INDEX by_stamp ON item (stamp) WHERE stamp > 5";
    Sqlite::raw(&stage.pool, index).await.unwrap();
    refuse(&stage, "REPLACE INTO item VALUES (3, 3, 3)", "may write unseen").await;
    stage.check_undone("item", COLUMNS, &["INSERT INTO item VALUES (3, 3, 3)"]).await;
}

/// A temporary table of the same name would get the triggers that are made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_stays_in_its_schema() {
    let stage = stamped::<Sqlite>("UPDATE").await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE item SET v = 7 WHERE id = 1"]).await;
    Sqlite::raw(&stage.pool, "CREATE TEMP TABLE item (id INTEGER)").await.unwrap();
    let xid = global.xid().clone();
    // On the connection with the temporary table it needs an operator, on another one it does not.
    let _ = global.rollback("test").await;
    stage
        .await_status(&xid, |status| {
            matches!(status, GlobalStatus::NeedsOperator(_) | GlobalStatus::RolledBack(_))
        })
        .await;
    let kept = "SELECT COUNT(*) FROM main.sqlite_schema WHERE type = 'trigger'";
    assert_eq!(stage.value(kept).await.as_deref(), Some("1"));
}

/// The UPDATE of the columns alone would set such a column to its own time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_of_the_last_change_comes_back_beside_them() {
    let stage = stamped::<MySql>("INSERT").await;
    for sql in [
        "ALTER TABLE item ADD seen TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP",
        "UPDATE item SET seen = '2024-01-01 00:00:00'",
    ] {
        MySql::raw(&stage.pool, sql).await.unwrap();
    }
    let columns = &["id", "v", "stamp", "seen"];
    stage.check_undone("item", columns, &["DELETE FROM item WHERE id = 1"]).await;
}

/// An account that has lost the right leaves it to an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stamp_that_cannot_be_written_back_needs_an_operator() {
    let stage = stamped::<Postgres>("UPDATE").await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE item SET v = 7 WHERE id = 1"]).await;
    Postgres::raw(&stage.pool, "ALTER TABLE item ENABLE ALWAYS TRIGGER owns").await.unwrap();
    let refused = stage.refused(global).await;
    assert!(refused.error.contains("let the account switch triggers off"), "{}", refused.error);
}

/// The branch has left the stamp as it was; what another program's change then made of it is
/// written over with the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_row_has_its_own_stamp_again() {
    let body = "NEW.stamp = coalesce(NEW.v, 0) * 7 + 1";
    let stage = staged::<Postgres>("UPDATE", [body, "", ""]).await;
    Postgres::raw(&stage.pool, "UPDATE item SET v = 0").await.unwrap();
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE item SET v = NULL WHERE id = 1"]).await;
    Postgres::raw(&stage.pool, "UPDATE item SET v = 1234 WHERE id = 1").await.unwrap();
    let refused = stage.refused(global).await;
    stage.end(&refused, Resolution::ForceBefore).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// Conditions, and rows that the function keeps out of the table, on PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_trigger_does_besides_is_seen() {
    let stage = stamped::<Postgres>("UPDATE").await;
    for sql in [
        "CREATE TABLE heard (n INT)",
        "CREATE FUNCTION hear(n INT) RETURNS boolean LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO heard VALUES (n); RETURN true; END $$",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$",
        "CREATE TABLE asked (id INT PRIMARY KEY)",
        "CREATE TRIGGER asks BEFORE INSERT ON asked FOR EACH ROW WHEN (hear(NEW.id)) \
         EXECUTE FUNCTION own()",
        "CREATE TABLE kept (id INT PRIMARY KEY)",
        "INSERT INTO kept VALUES (1)",
        "CREATE TRIGGER keeps BEFORE INSERT OR DELETE ON kept FOR EACH ROW EXECUTE FUNCTION keep()",
    ] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    refuse(&stage, "INSERT INTO asked VALUES (1)", "trigger asks may write unseen").await;
    refuse(&stage, "DELETE FROM kept", "trigger keeps may write unseen").await;
    // Vouched for all the same: the row that stays out is noticed.
    let trusted = stage.handfast.at(stage.pool.clone()).trust_trigger("keeps").await.unwrap();
    let global = stage.begin().await;
    global.scope(Postgres::run_alone(&trusted, "DELETE FROM kept")).await.unwrap();
    let refused = stage.refused(global).await;
    assert!(refused.error.contains("keeps rows"), "{}", refused.error);
}
