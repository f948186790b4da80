//! A last branch of one statement that gives the key of its row as whole numbers. Behind another
//! branch, or among others, its lock comes first, then all of it in one call where the database can
//! compose the undo row; on SQLite others share a local transaction. The only branch of a global
//! that runs alone is registered behind its statement.

use std::time::Duration;

use futures::future::join_all;
use handfast::{GlobalStatus, Xid};
use handfast_core::{Command, PhaseOneOutcome};
use handfast_test_services::until;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::operator::number;
use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    it_waits_for_its_row_with_nothing_held,
    behind_another_branch_it_waits_with_nothing_held,
    it_decides_nothing_if_it_finds_no_row,
    a_refused_change_leaves_the_global_undecided,
    a_row_that_it_leaves_as_it_was_is_changed,
    one_call_counts_one_row,
    it_goes_with_others_who_vote,
    it_decides_nothing_beside_a_branch_that_was_begun_meanwhile,
    it_decides_nothing_that_the_coordinator_would_not_commit,
);

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL CHECK (n >= 0))",
    "INSERT INTO account VALUES (1, 10), (2, 20), (3, 30)",
];

/// A text with this database's placeholders in place of each `?`.
fn text<DB: TestDatabase>(sql: &str) -> String {
    let mut parts = sql.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (at, part) in parts.enumerate() {
        let placeholder =
            if DB::NAME_IN_TESTS == "postgres" { format!("${}", at + 1) } else { "?".to_owned() };
        text.push_str(&placeholder);
        text.push_str(part);
    }
    text
}

fn take<DB: TestDatabase>() -> String {
    text::<DB>("UPDATE account SET n = n - ? WHERE id = ? AND n <> 0")
}

/// Lets the resource know the plan of a statement.
async fn warmed<DB: TestDatabase>(setup: &[&str], sql: &str, arguments: &[i64]) -> Stage<DB> {
    let stage = Stage::<DB>::new(setup).await;
    let global = stage.begin().await;
    global.scope(DB::run_alone_with(&stage.resource, sql, arguments)).await.unwrap();
    stage.roll_back(global).await;
    stage
}

async fn waiters<DB: TestDatabase>(stage: &Stage<DB>) -> usize {
    stage.tc.engine().view(|coordinator| coordinator.counts().waiters).await.unwrap()
}

async fn n<DB: TestDatabase>(stage: &Stage<DB>, id: i64) -> String {
    stage.value(&format!("SELECT n FROM account WHERE id = {id}")).await.unwrap()
}

/// Waits until the global is committed, and returns its timeline.
async fn timeline<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid) -> String {
    stage.await_status(xid, |status| status == GlobalStatus::Committed).await;
    let id = number(xid);
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(id)).await.unwrap();
    view.unwrap().record.events.iter().map(|event| format!("{}\n", event.what)).collect()
}

async fn it_waits_for_its_row_with_nothing_held<DB: TestDatabase>() {
    waits_with_nothing_held::<DB>(ACCOUNT, &[], "5").await;
}

async fn behind_another_branch_it_waits_with_nothing_held<DB: TestDatabase>() {
    waits_with_nothing_held::<DB>(ACCOUNT, &[2], "5").await;
}

/// Takes from account 1 what is to be `left`, while another global holds it, and before that from
/// others.
async fn waits_with_nothing_held<DB: TestDatabase>(setup: &[&str], others: &[i64], left: &str) {
    let stage = warmed::<DB>(setup, &take::<DB>(), &[1, 1]).await;
    let holder = stage.begin().await;
    holder.scope(DB::run_alone_with(&stage.resource, &take::<DB>(), &[2, 1])).await.unwrap();
    let (last, sql) = (stage.resource.last(), take::<DB>());
    let taken = stage.handfast.transaction("take").run(async |_tx| {
        for other in others {
            DB::run_alone_with(&stage.resource, &sql, &[1, *other]).await?;
        }
        DB::run_alone_with(&last, &sql, &[3, 1]).await
    });
    let given = async {
        until("the branch waits", async || waiters(&stage).await > 0).await;
        // The row is free in the database.
        let touched = DB::raw(&stage.pool, "UPDATE account SET n = n + 0 WHERE id = 1");
        tokio::time::timeout(Duration::from_secs(30), touched).await.unwrap().unwrap();
        holder.commit().await.unwrap();
    };
    let (taken, ()) = futures::join!(taken, given);
    assert_eq!(taken.unwrap(), 1);
    assert_eq!(n(&stage, 1).await, left);
}

async fn it_decides_nothing_if_it_finds_no_row<DB: TestDatabase>() {
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let gone = stage.handfast.transaction("take").run(async |_tx| {
        DB::run_alone_with(&stage.resource, &sql, &[1, 1]).await?;
        let taken = DB::run_alone_with(&stage.resource.last(), &sql, &[1, 7]).await?;
        assert_eq!(taken, 0);
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    assert_eq!(gone.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    assert_eq!(n(&stage, 1).await, "10");
    // It goes on, with another last branch.
    let done = stage.handfast.transaction("take").run(async |tx| {
        let last = stage.resource.last();
        assert_eq!(DB::run_alone_with(&last, &sql, &[1, 7]).await?, 0);
        assert_eq!(DB::run_alone_with(&last, &sql, &[1, 2]).await?, 1);
        Ok::<_, sqlx::Error>(tx.xid().cloned().unwrap())
    });
    let told = timeline(&stage, &done.await.unwrap()).await;
    assert!(told.contains("its last branch has committed"), "{told}");
    assert_eq!(n(&stage, 2).await, "19");
}

async fn a_refused_change_leaves_the_global_undecided<DB: TestDatabase>() {
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let refused = stage.handfast.transaction("take").run(async |_tx| {
        DB::run_alone_with(&stage.resource, &sql, &[1, 1]).await?;
        DB::run_alone_with(&stage.resource.last(), &sql, &[21, 2]).await
    });
    assert_eq!(refused.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    assert_eq!((n(&stage, 1).await, n(&stage, 2).await), ("10".to_owned(), "20".to_owned()));
    assert_eq!(stage.undo_rows().await, 0);
    // The row is free again, in the database and at the coordinator.
    let global = stage.begin().await;
    global.scope(DB::run_alone_with(&stage.resource, &sql, &[1, 2])).await.unwrap();
    stage.commit(global).await;
}

async fn a_row_that_it_leaves_as_it_was_is_changed<DB: TestDatabase>() {
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let done = stage.handfast.transaction("take").run(async |tx| {
        DB::run_alone_with(&stage.resource, &sql, &[1, 3]).await?;
        assert_eq!(DB::run_alone_with(&stage.resource.last(), &sql, &[0, 1]).await?, 1);
        Ok::<_, sqlx::Error>(tx.xid().cloned().unwrap())
    });
    let xid = done.await.unwrap();
    let told = timeline(&stage, &xid).await;
    assert!(told.contains("its last branch has committed"), "{told}");
    until("undo rows are gone", async || stage.undo_rows().await == 0).await;
}

/// Behind another branch all of it is one call, which inserts the undo row too.
async fn one_call_counts_one_row<DB: TestDatabase>() {
    let setup = [
        "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL)",
        "INSERT INTO account VALUES (1, 10), (2, 20)",
    ];
    let sql = take::<DB>();
    let stage = warmed::<DB>(&setup, &sql, &[1, 1]).await;
    let done = stage.handfast.transaction("take").run(async |_tx| {
        DB::run_alone_with(&stage.resource, &sql, &[1, 1]).await?;
        DB::run_alone_with(&stage.resource.last(), &sql, &[1, 2]).await
    });
    assert_eq!(done.await.unwrap(), 1);
    assert_eq!((n(&stage, 1).await, n(&stage, 2).await), ("9".to_owned(), "19".to_owned()));
}

/// The order of registrations is that of the changes only as long as nothing joins behind it.
async fn it_goes_with_others_who_vote<DB: TestDatabase>() {
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let global = stage.handfast.transaction("take").can_commit_first().begin().await.unwrap();
    let last = stage.resource.last();
    global.scope(DB::run_alone_with(&last, &sql, &[1, 1])).await.unwrap();
    global.scope(DB::run_alone_with(&stage.resource, &sql, &[1, 1])).await.unwrap();
    assert_eq!(n(&stage, 1).await, "8");
    stage.roll_back(global).await;
    assert_eq!(n(&stage, 1).await, "10");
}

/// The other branch would be refused, and the global committed without it.
async fn it_decides_nothing_beside_a_branch_that_was_begun_meanwhile<DB: TestDatabase>() {
    // SQLite has one writer.
    if DB::NAME_IN_TESTS == "sqlite" {
        return;
    }
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let holder = stage.begin().await;
    holder.scope(DB::run_alone_with(&stage.resource, &sql, &[2, 1])).await.unwrap();
    let (resource, last) = (&stage.resource, stage.resource.last());
    let fails = stage.handfast.transaction("take").run(async |_tx| {
        // Behind another branch it asks for its row first.
        DB::run_alone_with(resource, &sql, &[1, 3]).await?;
        let other = async {
            until("the branch waits", async || waiters(&stage).await > 0).await;
            let mut open = resource.begin().await?;
            DB::run(&mut open, "UPDATE account SET n = n + 1 WHERE id = 2").await?;
            holder.commit().await.unwrap();
            Ok::<_, sqlx::Error>(open)
        };
        let (taken, open) = tokio::join!(DB::run_alone_with(&last, &sql, &[3, 1]), other);
        assert_eq!(taken?, 1);
        open?.commit().await?;
        Err::<(), _>(sqlx::Error::RowNotFound)
    });
    assert_eq!(fails.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    assert_eq!((n(&stage, 1).await, n(&stage, 2).await), ("8".to_owned(), "20".to_owned()));
}

/// The global can only be rolled back, which its process does not know.
async fn it_decides_nothing_that_the_coordinator_would_not_commit<DB: TestDatabase>() {
    let sql = take::<DB>();
    let stage = warmed::<DB>(ACCOUNT, &sql, &[1, 1]).await;
    let fails = stage.handfast.transaction("take").run(async |tx| {
        DB::run_alone_with(&stage.resource, &sql, &[1, 1]).await?;
        let xid = number(tx.xid().unwrap());
        let view = stage.tc.engine().view(move |coordinator| coordinator.global(xid)).await;
        let branch = view.unwrap().unwrap().branches.remove(0).id;
        let (outcome, application_data) = (Some(PhaseOneOutcome::Unknown), Box::default());
        let doubt = Command::ReportBranch { xid, branch, outcome, application_data };
        stage.tc.engine().call(doubt).await.unwrap();
        DB::run_alone_with(&stage.resource.last(), &sql, &[1, 2]).await
    });
    assert_eq!(fails.await.unwrap_err().code(), "HF-TM-ROLLED-BACK");
    until("undo rows are gone", async || stage.undo_rows().await == 0).await;
    assert_eq!((n(&stage, 1).await, n(&stage, 2).await), ("10".to_owned(), "20".to_owned()));
}

/// Two rows that differ in their key alone, changed alike: one by the library's own statements, and
/// one by the call that composes its undo row. Each undo row is kept by a trigger.
async fn both_undo_rows<DB: TestDatabase>(setup: &[&str], keep: &[&str], changes: &[&str]) {
    let stage = Stage::<DB>::new(&[setup, keep].concat()).await;
    for change in changes {
        let sql = text::<DB>(&format!("UPDATE thing SET {change} WHERE id = ?"));
        // The first run makes the plan known, by which the second one is composed.
        for id in [1_001, 1_002] {
            let changed = stage
                .handfast
                .transaction("change")
                .run(async |_tx| DB::run_alone_with(&stage.resource, &sql, &[id]).await);
            assert_eq!(changed.await.unwrap(), 1, "{sql}");
        }
        let logs = stage.dump("kept", &["log", "context"]).await;
        let [one, other] = &logs[..] else { panic!("{sql}: {} undo rows", logs.len()) };
        let [log, context] = &one[..] else { unreachable!("two columns are read") };
        let same = log.as_ref().map(|log| log.replace("1001", "1002"));
        assert_eq!((parsed(&same), context), (parsed(&other[0]), &other[1]), "{sql}");
        DB::raw(&stage.pool, "DELETE FROM kept").await.unwrap();
    }
}

/// MariaDB writes the digits of an escaped character in capitals.
fn parsed(log: &Option<String>) -> serde_json::Value {
    serde_json::from_str(log.as_deref().unwrap()).unwrap()
}

#[tokio::test]
async fn postgres_composes_the_undo_row_that_the_library_would() {
    let table = "CREATE TABLE thing (id BIGINT PRIMARY KEY, small SMALLINT, whole INTEGER, \
                 big BIGINT, flag BOOLEAN, words TEXT, name VARCHAR(80), price NUMERIC(20, 4), \
                 day DATE, hour TIME, moment TIMESTAMP, instant TIMESTAMPTZ, mark UUID)";
    let rows = "INSERT INTO thing SELECT id, -7, 7, 9223372036854775806, true, \
                E'a\"b\\\\c\\n\\t\\u0001\\u007f \u{e4} \u{1f600} ''', 'name', 12.5000, \
                '2026-02-28', '12:30:01.5', '1999-12-31 23:59:59.999999', \
                '2026-11-29 01:02:03+05:30', '00112233-4455-6677-8899-aabbccddeeff' \
                FROM (VALUES (1001), (1002)) AS it (id)";
    let keep = [
        "CREATE TABLE kept (log TEXT, context TEXT)",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO kept VALUES (convert_from(NEW.rollback_info, 'UTF8'), NEW.context); \
         RETURN NEW; END $$",
        "CREATE TRIGGER keep AFTER INSERT ON undo_log FOR EACH ROW EXECUTE FUNCTION keep()",
    ];
    let changes = [
        "small = small - 1",
        "whole = NULL, big = big + 1",
        "flag = false",
        "flag = NULL, words = words || '\"'",
        "words = NULL, name = ''",
        "price = price * -3",
        "price = 'NaN'",
        "day = 'infinity', hour = '00:00'",
        "moment = NULL, instant = '-infinity'",
        "mark = NULL",
    ];
    both_undo_rows::<Postgres>(&[table, rows], &keep, &changes).await;
}

#[tokio::test]
async fn mariadb_composes_the_undo_row_that_the_library_would() {
    let table = "CREATE TABLE thing (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, \
                 small SMALLINT UNSIGNED, medium MEDIUMINT, whole INT, big BIGINT UNSIGNED, \
                 letters CHAR(20), name VARCHAR(80), old VARCHAR(80) CHARACTER SET latin1, \
                 words TEXT, price DECIMAL(20, 4), kind ENUM('plain', 'r\u{e4}re'), \
                 tags SET('a', 'b'))";
    let rows = "INSERT INTO thing SELECT id, -7, 65535, -8388608, 7, 18446744073709551615, \
                'letters ', CONCAT('a\"b\\\\c\\n\\t\\0 \u{e4} \u{1f600} ''', CHAR(1, 31, 127 USING utf8mb4)), 'caf\u{e9}', \
                REPEAT('long ', 4000), 12.5000, 'plain', 'a,b' \
                FROM (SELECT 1001 AS id UNION SELECT 1002) AS it";
    let keep = [
        "CREATE TABLE kept (log LONGTEXT, context TEXT)",
        "CREATE TRIGGER keep AFTER INSERT ON undo_log FOR EACH ROW \
         INSERT INTO kept VALUES (CONVERT(NEW.rollback_info USING utf8mb4), NEW.context)",
    ];
    let changes = [
        "tiny = tiny + 1, small = small - 1",
        "medium = NULL, whole = whole - 8",
        "big = big - 1",
        "letters = CONCAT(TRIM(letters), '\"')",
        "name = CONCAT(name, name), old = UPPER(old)",
        "words = CONCAT(words, old), name = ''",
        "price = price * -3",
        "price = NULL, words = NULL",
        "kind = 'r\u{e4}re', tags = ''",
        "kind = NULL, tags = NULL",
    ];
    both_undo_rows::<MySql>(&[table, rows], &keep, &changes).await;
}

/// Stores the log of each undo row when it is complete.
const KEEP_ON_SQLITE: [&str; 3] = [
    "CREATE TABLE kept (xid TEXT, branch_id INTEGER, log TEXT, context TEXT)",
    "CREATE TRIGGER keep AFTER INSERT ON undo_log BEGIN INSERT INTO kept VALUES \
     (NEW.xid, NEW.branch_id, CAST(NEW.rollback_info AS TEXT), NEW.context); END",
    "CREATE TRIGGER complete AFTER UPDATE ON undo_log BEGIN UPDATE kept SET log = \
     CAST(NEW.rollback_info AS TEXT) WHERE xid = NEW.xid AND branch_id = NEW.branch_id; END",
];

#[tokio::test]
async fn sqlite_composes_the_undo_row_that_the_library_would() {
    let table = "CREATE TABLE thing (id INTEGER PRIMARY KEY, whole INT, real REAL, words TEXT, \
                 bytes BLOB, untyped)";
    let rows = "INSERT INTO thing SELECT id, 7, 0.1, 'a\"b\\c /''~', x'00ff10', NULL \
                FROM (SELECT 1001 AS id UNION SELECT 1002) AS it";
    let changes = [
        "whole = -9223372036854775808",
        "whole = NULL, words = words || '!'",
        "words = '', untyped = 'text'",
        "bytes = x'', untyped = bytes",
        "untyped = 12, bytes = NULL",
        // These the library writes itself: SQLite would not write them as exactly.
        "words = 'caf\u{e9}'",
        "words = 'tab\t', real = real * 3",
        "words = 'nul' || char(0) || 'nul', real = 1e300",
    ];
    both_undo_rows::<Sqlite>(&[table, rows], &KEEP_ON_SQLITE, &changes).await;
}

/// The library refuses such a text, and SQLite would write it into the log.
#[tokio::test]
async fn sqlite_composes_no_text_that_is_not_utf_8() {
    let table = "CREATE TABLE thing (id INTEGER PRIMARY KEY, words TEXT)";
    let stage = Stage::<Sqlite>::new(&[table, "INSERT INTO thing VALUES (1, 'w')"]).await;
    let sql = "UPDATE thing SET words = CAST(x'77ff' AS TEXT) WHERE id = ?";
    for resource in [&stage.resource, &stage.resource.last()] {
        let global = stage.begin().await;
        let refused = global.scope(Sqlite::run_alone_with(resource, sql, &[1])).await;
        assert_eq!(code(&refused.unwrap_err()), "HF-AT-VALUE");
        stage.roll_back(global).await;
        assert_eq!(stage.value("SELECT words FROM thing").await.as_deref(), Some("w"));
    }
}

/// A table whose rows are not judged before they are changed, which takes an image.
const PLAIN: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL UNIQUE)",
    "INSERT INTO account VALUES (1, 1000), (2, 2000), (3, 3000), (4, 4000), (5, 5000), (6, 6000), \
     (7, 7000), (8, 8000), (99, 7)",
];

/// It is registered behind its statement, and refused.
#[tokio::test]
async fn on_sqlite_it_waits_for_a_plain_row_with_nothing_held() {
    waits_with_nothing_held::<Sqlite>(PLAIN, &[], "995").await;
}

/// In a database whose texts are UTF-16 an undo log that SQLite composes would be, too.
#[tokio::test]
async fn sqlite_composes_no_undo_row_in_another_encoding() {
    let stage = Stage::<Sqlite>::new(&[]).await;
    let options = stage.pool.connect_options();
    let options = SqliteConnectOptions::new()
        .filename(options.get_filename().with_extension("utf16"))
        .create_if_missing(true)
        .pragma("encoding", "'UTF-16le'");
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let encoding = sqlx::query_scalar::<_, String>("PRAGMA encoding");
    assert_eq!(encoding.fetch_one(&pool).await.unwrap(), "UTF-16le");
    stage.handfast.migrate(&pool).await.unwrap();
    for sql in PLAIN {
        Sqlite::raw(&pool, sql).await.unwrap();
    }
    let (resource, sql) = (stage.handfast.at(pool.clone()).await.unwrap(), take::<Sqlite>());
    for _ in 0..2 {
        let global = stage.begin().await;
        let taken = Sqlite::run_alone_with(&resource, &sql, &[1, 1]);
        assert_eq!(global.scope(taken).await.unwrap(), 1);
        stage.roll_back(global).await;
    }
    let left = sqlx::query_scalar::<_, i64>("SELECT n FROM account WHERE id = 1");
    assert_eq!(left.fetch_one(&pool).await.unwrap(), 1_000);
}

/// Where one local transaction writes at a time, last branches share the next one while it runs.
/// One that cannot commit takes none of the others with it, nor does one that finds no row.
#[tokio::test]
async fn last_branches_of_sqlite_share_a_local_transaction() {
    let sql = take::<Sqlite>();
    let stage = warmed::<Sqlite>(PLAIN, &sql, &[1, 1]).await;
    let last = stage.resource.last();
    for round in 0..8 {
        let taken = async |id: i64| {
            let (amount, id) = match id {
                // As much as account 99 has, which is not to be.
                5 => (5_000 - 7, 5),
                // There is no such account.
                7 => (1, 70),
                _ => (1, id),
            };
            let global = stage.handfast.transaction("take");
            let taken = global.run(async |_tx| {
                match Sqlite::run_alone_with(&last, &sql, &[amount, id]).await? {
                    // Nothing is decided.
                    0 => Err(sqlx::Error::RowNotFound),
                    taken => Ok(taken),
                }
            });
            taken.await
        };
        let ended = join_all((1..=8).map(taken)).await;
        for (id, ended) in (1..).zip(ended) {
            match id {
                5 | 7 => assert_eq!(ended.unwrap_err().code(), "HF-TM-ROLLED-BACK", "{round}"),
                _ => assert_eq!(ended.unwrap(), 1, "{round}: {id}"),
            }
        }
    }
    for (id, left) in [(1, "992"), (4, "3992"), (5, "5000"), (7, "7000"), (8, "7992"), (99, "7")] {
        assert_eq!(n(&stage, id).await, left);
    }
    until("undo rows are gone", async || stage.undo_rows().await == 0).await;
}
