//! Tables and statements of many shapes: keys, upserts, foreign keys, sub-selects, refusals.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use at::{Stage, TestDatabase, code, on_every_database};
use futures::TryStreamExt;
use handfast::Propagation;
use handfast::outbox::{Event, OutboxError};
use handfast_test_services::until;
use sqlx::{Executor, Postgres, Row, Sqlite};

const LINES: &[&str] = &[
    "CREATE TABLE line (order_id BIGINT NOT NULL, line_no VARCHAR(16) NOT NULL, qty INT, \
     PRIMARY KEY (order_id, line_no))",
    "INSERT INTO line VALUES (7, 'a', 1), (7, 'b', 2), (8, 'a_b', 3), (8, 'x;y:z,^', 4)",
    "CREATE TABLE picked (id BIGINT NOT NULL PRIMARY KEY)",
    "INSERT INTO picked VALUES (7)",
];
const LINE: &[&str] = &["order_id", "line_no", "qty"];

const MEMBER: &[&str] = &[
    "CREATE TABLE member (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(32), age INT, UNIQUE (name))",
    "INSERT INTO member VALUES (1, 'Jack', 20), (2, 'Ann', 30)",
];
const MEMBERS: &[&str] = &["id", "name", "age"];

on_every_database!(
    rows_with_composite_keys_are_undone,
    statements_with_sub_selects_are_undone,
    upserts_are_undone,
    children_and_parents_are_restored_in_order,
    rows_that_refer_to_each_other_are_undone,
    many_rows_are_undone,
    refusals_come_before_the_change,
    a_missing_client_table_is_named,
    spellings_of_a_key_name_one_row,
);

async fn rows_with_composite_keys_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(LINES).await;
    for sql in [
        "UPDATE line SET qty = qty + 1 WHERE order_id = 7",
        "UPDATE line SET qty = 0",
        "DELETE FROM line WHERE line_no = 'x;y:z,^'",
        "INSERT INTO line VALUES (9, 'a', 1), (9, 'b', 2)",
        "INSERT INTO line (qty, line_no, order_id) VALUES (5, 'é', 9)",
    ] {
        stage.check_undone("line", LINE, &[sql]).await;
    }
}

async fn statements_with_sub_selects_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(LINES).await;
    for sql in [
        "UPDATE line SET qty = 9 WHERE order_id IN (SELECT id FROM picked)",
        "UPDATE line SET qty = (SELECT MAX(id) FROM picked) WHERE order_id = 8",
        "DELETE FROM line WHERE EXISTS (SELECT 1 FROM picked WHERE id = order_id)",
    ] {
        stage.check_undone("line", LINE, &[sql]).await;
    }
}

async fn upserts_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    let statements: &[&str] = match DB::NAME_IN_TESTS {
        "mysql" => &[
            "INSERT INTO member VALUES (1, 'Jack', 81) ON DUPLICATE KEY UPDATE age = 82",
            // The key is another one, but the name exists already, so the existing row is changed.
            "INSERT INTO member VALUES (9, 'Jack', 81) ON DUPLICATE KEY UPDATE age = 82",
            "INSERT INTO member VALUES (1, 'Jack', 1), (3, 'Tom', 2) \
             ON DUPLICATE KEY UPDATE age = age + 1",
            "INSERT IGNORE INTO member VALUES (1, 'Jack', 1), (3, 'Tom', 2)",
            "REPLACE INTO member VALUES (9, 'Jack', 1), (3, 'Tom', 2)",
        ],
        "sqlite" => &[
            "INSERT INTO member VALUES (1, 'Jack', 81) ON CONFLICT (id) DO UPDATE SET age = 82",
            "INSERT INTO member VALUES (1, 'x', 1), (3, 'Tom', 2) ON CONFLICT DO NOTHING",
            "INSERT OR IGNORE INTO member VALUES (1, 'Jack', 1), (3, 'Tom', 2)",
            "REPLACE INTO member VALUES (9, 'Jack', 1), (3, 'Tom', 2)",
        ],
        _ => &[
            "INSERT INTO member VALUES (1, 'Jack', 81) ON CONFLICT (id) DO UPDATE SET age = 82",
            "INSERT INTO member VALUES (9, 'Jack', 81) ON CONFLICT (name) DO UPDATE SET age = 82",
            "INSERT INTO member VALUES (1, 'x', 1), (3, 'Tom', 2) \
             ON CONFLICT (id) DO UPDATE SET age = member.age + 1",
            "INSERT INTO member VALUES (1, 'x', 1), (3, 'Tom', 2) ON CONFLICT DO NOTHING",
            "INSERT INTO member SELECT id + 10, name || '2', age FROM member",
        ],
    };
    for sql in statements {
        stage.check_undone("member", MEMBERS, &[sql]).await;
    }
}

async fn children_and_parents_are_restored_in_order<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE parent (id BIGINT NOT NULL PRIMARY KEY)",
        "CREATE TABLE child (id BIGINT NOT NULL PRIMARY KEY, parent BIGINT, \
         FOREIGN KEY (parent) REFERENCES parent (id))",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (10, 1)",
    ])
    .await;
    let statements = ["DELETE FROM child WHERE id = 10", "DELETE FROM parent WHERE id = 1"];
    stage.check_undone("child", &["id", "parent"], &statements).await;
    let statements = ["INSERT INTO parent VALUES (2)", "INSERT INTO child VALUES (20, 2)"];
    stage.check_undone("child", &["id", "parent"], &statements).await;
}

async fn rows_that_refer_to_each_other_are_undone<DB: TestDatabase>() {
    // Children have lower keys than their parents, so undoing in key order would fail.
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE node (id BIGINT NOT NULL PRIMARY KEY, parent BIGINT, \
         FOREIGN KEY (parent) REFERENCES node (id))",
        "INSERT INTO node VALUES (3, NULL)",
        "INSERT INTO node VALUES (2, 3)",
        "INSERT INTO node VALUES (1, 2)",
    ])
    .await;
    let deletes = if DB::NAME_IN_TESTS == "mysql" {
        // SQLite checks row by row here too.
        vec!["DELETE FROM node WHERE id = 1", "DELETE FROM node WHERE id = 2"]
    } else {
        vec!["DELETE FROM node"]
    };
    stage.check_undone("node", &["id", "parent"], &deletes).await;
    let inserts = ["INSERT INTO node VALUES (9, 3), (8, 9), (7, 8)"];
    stage.check_undone("node", &["id", "parent"], &inserts).await;
}

async fn many_rows_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(LINES).await;
    let values: Vec<String> = (0..2_500).map(|n| format!("({n}, 'bulk', {n})")).collect();
    let insert = format!("INSERT INTO line VALUES {}", values.join(", "));
    stage.check_undone("line", LINE, &[&insert]).await;
    DB::raw(&stage.pool, &insert).await.unwrap();
    stage.check_undone("line", LINE, &["UPDATE line SET qty = qty + 1"]).await;
    stage.check_undone("line", LINE, &["DELETE FROM line"]).await;
}

async fn refusals_come_before_the_change<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(MEMBER).await;
    // SQLite's row id is a key where its names are not taken.
    let more = if DB::NAME_IN_TESTS == "sqlite" { ", rowid INT, _rowid_ INT, oid INT" } else { "" };
    DB::raw(&stage.pool, &format!("CREATE TABLE keyless (a INT{more})")).await.unwrap();
    let before = stage.dump("member", MEMBERS).await;
    for (sql, expected) in [
        ("UPDATE keyless SET a = 1", "HF-AT-NO-PRIMARY-KEY"),
        ("DROP TABLE member", "HF-AT-DDL"),
        ("UPDATE member SET age = 1; DROP TABLE member", "HF-AT-DDL"),
        ("COMMIT", "HF-AT-TRANSACTION-CONTROL"),
        ("UPDATE nowhere SET age = 1", "HF-AT-UNKNOWN-TABLE"),
    ] {
        let global = stage.begin().await;
        let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&error), expected, "{sql}");
        stage.roll_back(global).await;
    }
    assert_eq!(stage.dump("member", MEMBERS).await, before);
    // Outside a global no statement is refused.
    DB::run_alone(&stage.resource, "DROP TABLE keyless").await.unwrap();
}

async fn a_missing_client_table_is_named<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[]).await;
    DB::raw(&stage.pool, "DROP TABLE undo_log").await.unwrap();
    let error = stage.handfast.at(stage.pool.clone()).await.unwrap_err();
    assert_eq!(error.code(), "HF-AT-CLIENT-TABLE-MISSING");
    let text = error.to_string();
    assert!(text.contains("undo_log") && text.contains("handfast.migrate(&pool)"), "{text}");
}

/// A locked row is the same row however a statement spells its table and key, and also through
/// another pool on the same database.
async fn spellings_of_a_key_name_one_row<DB: TestDatabase>() {
    let (setup, spellings): (&[&str], &[&str]) = match DB::NAME_IN_TESTS {
        "mysql" => (
            &["CREATE TABLE word (w VARCHAR(9) NOT NULL PRIMARY KEY, n INT)"],
            &[
                "UPDATE word SET n = 2 WHERE w = 'A '",
                "UPDATE `word` AS x SET x.n = 3 WHERE w = 'a'",
            ],
        ),
        "sqlite" => (
            &["CREATE TABLE word (w TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, n INT)"],
            &[
                "UPDATE \"WORD\" SET n = 2 WHERE w = 'A'",
                "UPDATE main.word SET n = 3 WHERE w = 'a'",
            ],
        ),
        _ => (
            &["CREATE TABLE word (w CHAR(9) NOT NULL PRIMARY KEY, n INT)"],
            &[
                "UPDATE \"word\" SET n = 2 WHERE w = 'a  '",
                "UPDATE public.WORD SET n = 3 WHERE w = 'a'",
            ],
        ),
    };
    let stage = Stage::<DB>::new(setup).await;
    DB::raw(&stage.pool, "INSERT INTO word VALUES ('a', 1)").await.unwrap();
    let again = stage.handfast.at(DB::again(&stage.pool).await);
    let again = again.lock_timeout(std::time::Duration::from_millis(1)).await.unwrap();
    assert_eq!(again.id(), stage.resource.id());
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE word SET n = 9 WHERE w = 'a'"]).await;
    let other = stage.begin().await;
    for sql in spellings {
        let error = other.scope(DB::run_alone(&again, sql)).await.unwrap_err();
        assert_eq!(code(&error), "HF-TC-ROW-LOCKED", "{sql}");
    }
    stage.roll_back(other).await;
    stage.roll_back(holder).await;
}

/// sqlx's own methods with arguments work on a resource and on a local transaction.
#[tokio::test]
async fn sqlx_methods_work_on_resource_and_transaction() {
    let stage = Stage::<Postgres>::new(MEMBER).await;
    let global = stage.begin().await;
    let work = async {
        let mut local = stage.resource.begin().await?;
        let aged: (i64, i32) =
            sqlx::query_as("UPDATE member SET age = age + $1 WHERE name = $2 RETURNING id, age")
                .bind(5)
                .bind("Jack")
                .fetch_one(&mut local)
                .await?;
        assert_eq!(aged, (1, 25));
        let rows: Vec<String> = sqlx::query("SELECT name FROM member ORDER BY id")
            .fetch(&mut local)
            .map_ok(|row| row.get(0))
            .try_collect()
            .await?;
        assert_eq!(rows, ["Jack", "Ann"]);
        local.commit().await?;
        sqlx::query("DELETE FROM member WHERE id = $1").bind(2_i64).execute(&stage.resource).await
    };
    assert_eq!(global.scope(work).await.unwrap().rows_affected(), 1);
    let before = [["1", "Jack", "20"], ["2", "Ann", "30"]];
    stage.roll_back(global).await;
    let after = stage.dump("member", MEMBERS).await;
    assert_eq!(after, before.map(|row| row.map(|text| Some(text.to_owned())).to_vec()));
}

/// A statement that was passed to `scope` ran outside the global. It was committed at once, and the
/// rollback did not undo it.
#[tokio::test]
async fn a_statement_runs_in_the_scope_that_awaits_it() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let (before, resource) = (stage.dump("member", MEMBERS).await, &stage.resource);
    let jack = "UPDATE member SET age = age + 1 WHERE id = 1 RETURNING age";
    let ann = "UPDATE member SET age = age + 1 WHERE id = 2";
    let global = stage.begin().await;
    global.scope(resource.execute(jack)).await.unwrap();
    global.scope(resource.fetch_one(jack)).await.unwrap();
    let (made,) = global.scope(async { (resource.fetch_all(jack),) }).await;
    made.await.unwrap();
    // The inner scope has no global.
    let suspended = global.scope(async {
        let plain = resource.execute(ann);
        let outside = stage.handfast.transaction("outside").propagation(Propagation::NotSupported);
        outside.run(async |_tx| plain.await).await
    });
    suspended.await.unwrap();
    stage.roll_back(global).await;
    let mut expected = before;
    expected[1][2] = Some("31".to_owned());
    assert_eq!(stage.dump("member", MEMBERS).await, expected);
}

/// Waits until the change itself waits for the table, and not only a read before it.
async fn wait_for_lock_on_member(pool: &sqlx::PgPool) {
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'member'::regclass \
                 AND mode = 'RowExclusiveLock' AND NOT granted)";
    until("the change waits for the table", async || {
        sqlx::query_scalar(waits).fetch_one(pool).await.unwrap()
    })
    .await;
}

/// After a statement was cut off by a timeout, the branch cannot be committed.
#[tokio::test]
async fn a_dropped_statement_forbids_the_commit() {
    let stage = Stage::<Postgres>::new(MEMBER).await;
    let mut blocker = stage.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE member IN SHARE MODE").execute(&mut *blocker).await.unwrap();
    let global = stage.begin().await;
    let mut local = global.scope(stage.resource.begin()).await.unwrap();
    let update = sqlx::query("DELETE FROM member WHERE id = 1").execute(&mut local);
    tokio::select! {
        ended = update => panic!("the table lock does not hold the statement up: {ended:?}"),
        () = wait_for_lock_on_member(&stage.pool) => {}
    }
    blocker.rollback().await.unwrap();
    assert_eq!(code(&local.commit().await.unwrap_err()), "HF-AT-HALF-RECORDED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("member", MEMBERS).await.len(), 2);
}

/// The closure form works in a spawned task.
#[tokio::test]
async fn the_closure_form_can_be_spawned() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let global = stage.begin().await;
    let resource = stage.resource.clone();
    let work = global.scope(async move {
        let age = 7;
        let work = resource.transaction(async |mut local| {
            sqlx::query("UPDATE member SET age = ? WHERE id = 1")
                .bind(age)
                .execute(&mut *local)
                .await
        });
        work.await
    });
    tokio::spawn(work).await.unwrap().unwrap();
    stage.commit(global).await;
    let age = stage.value("SELECT age FROM member WHERE id = 1").await;
    assert_eq!(age.as_deref(), Some("7"));
}

/// Several statements and an event in one closure did not compile in their natural form: the error
/// type could not be inferred, and an event's error could not be converted into sqlx's.
#[tokio::test]
async fn a_closure_of_several_statements_and_an_event_names_no_error() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let global = stage.begin().await;
    let (resource, id) = (stage.resource.clone(), 1);
    let work = async move {
        let age = resource
            .transaction(async |mut local| {
                let older = "UPDATE member SET age = age + 1 WHERE id = ? RETURNING age";
                let age: i64 = sqlx::query_scalar(older).bind(id).fetch_one(&mut *local).await?;
                let rename = "UPDATE member SET name = 'John' WHERE id = ?";
                sqlx::query(rename).bind(id).execute(&mut *local).await?;
                local.emit(&Event::new("members", "1").payload("older")).await?;
                Ok(age)
            })
            .await?;
        Ok::<_, sqlx::Error>(age)
    };
    let age = tokio::spawn(global.scope(work)).await.unwrap().unwrap();
    assert_eq!(age, 21);
    stage.commit(global).await;
    assert_eq!(stage.value("SELECT name FROM member WHERE id = 1").await.as_deref(), Some("John"));
    assert_eq!(stage.value("SELECT COUNT(*) FROM event_outbox").await.as_deref(), Some("1"));
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("too old")]
    TooOld,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

#[tokio::test]
async fn a_closure_may_return_its_own_error() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let global = stage.begin().await;
    let work = stage.resource.try_transaction(async |mut local| {
        sqlx::query("UPDATE member SET age = 99").execute(&mut *local).await?;
        Err::<(), _>(Failure::TooOld)
    });
    let refused = global.scope(work).await;
    assert!(matches!(refused, Err(Failure::TooOld)), "{refused:?}");
    let age = stage.value("SELECT age FROM member WHERE id = 1").await;
    assert_eq!(age.as_deref(), Some("20"));
    stage.commit(global).await;
}

/// The text had no code to look up, and blamed a database that was never asked.
#[tokio::test]
async fn a_refusal_shows_its_code_and_is_no_database_error() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let global = stage.begin().await;
    let ddl = async { stage.resource.execute("CREATE TABLE t (id INT)").await };
    let refused = global.scope(ddl).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.ends_with("(HF-AT-DDL)") && !text.contains("returned from database"), "{text}");
    let local = global.scope(async {
        let mut local = stage.resource.begin().await.unwrap();
        let event = Event::new("", "1");
        let refused: sqlx::Error = local.emit(&event).await.unwrap_err().into();
        local.rollback().await.unwrap();
        refused
    });
    let refused = local.await;
    assert!(matches!(OutboxError::of(&refused), Some(OutboxError::Malformed { .. })), "{refused}");
    assert!(refused.to_string().ends_with("(HF-OUTBOX-MALFORMED)"), "{refused}");
    stage.commit(global).await;
}

/// A missing layer, or a proxy that drops the header, turned work of a global into plain local work
/// that was committed at once.
#[tokio::test]
async fn a_resource_for_globals_refuses_work_outside_one() {
    let stage = Stage::<Sqlite>::new(MEMBER).await;
    let resource = stage.handfast.at(stage.pool.clone()).only_in_global().await.unwrap();
    let write = "UPDATE member SET age = 7";
    let closure = resource.transaction(async |mut local| local.execute(write).await);
    for refused in [
        resource.begin().await.map(drop),
        closure.await.map(drop),
        resource.execute(write).await.map(drop),
    ] {
        assert_eq!(code(&refused.unwrap_err()), "HF-AT-OUTSIDE-GLOBAL");
    }
    let read = sqlx::query("SELECT age FROM member WHERE id = 1").fetch_one(&resource).await;
    assert_eq!(read.unwrap().get::<i64, _>(0), 20);
    resource.begin_checked().await.unwrap().rollback().await.unwrap();
    let global = stage.begin().await;
    global.scope(async { resource.execute(write).await }).await.unwrap();
    stage.commit(global).await;
    assert_eq!(stage.value("SELECT age FROM member WHERE id = 1").await.as_deref(), Some("7"));
}
