//! The statements that a branch of one statement sends to its database, counted from the driver's
//! own events.
//!
//! The counts are the generated table of `docs/at.md`; `UPDATE_EXPECT=1` writes it again. A plain
//! local transaction sends three: BEGIN, the statement and COMMIT. Not every driver has an event
//! for BEGIN and COMMIT of its own, so that what a plain one lacks is added to each count of a
//! branch that the driver begins.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod at;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use expect_test::expect_file;
use handfast::guarded::{self, GuardMode, GuardStart};
use handfast::{AtResource, GlobalStatus};
use sqlx::{MySql, Postgres, Sqlite};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use at::{Stage, TestDatabase, read_committed};

const BEGINS: &str = "<!-- statements sent -->\n";
const ENDS: &str = "<!-- end of statements sent -->\n";

/// The statements that the driver has run in this process.
static SENT: AtomicUsize = AtomicUsize::new(0);

/// Counts the driver's event for each statement.
struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut statement = Statement::default();
        event.record(&mut statement);
        if !statement.is_beside {
            SENT.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The statement of an event.
#[derive(Default)]
struct Statement {
    /// It deletes undo rows, is the last of a rollback in the background, or prepares a connection
    /// that the pool opens while those are in use.
    is_beside: bool,
}

impl Visit for Statement {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let shown = format!("{value:?}");
        let names = ["DELETE FROM undo_log", "SET SESSION sql_mode", "SET sql_mode", "PRAGMA "];
        self.is_beside |=
            field.name() == "summary" && names.iter().any(|name| shown.contains(name));
    }
}

/// A statement, as each database has it.
struct Shape {
    name: &'static str,
    postgres: Option<&'static str>,
    mysql: Option<&'static str>,
    sqlite: Option<&'static str>,
}

impl Shape {
    const fn same(name: &'static str, sql: &'static str) -> Self {
        Self { name, postgres: Some(sql), mysql: Some(sql), sqlite: Some(sql) }
    }
}

const SHAPES: &[Shape] = &[
    Shape::same("a read", "SELECT n FROM item WHERE id = 1"),
    Shape::same("locking read", "SELECT n FROM item WHERE id = 1 FOR UPDATE"),
    Shape::same("UPDATE of one row by its key", "UPDATE item SET n = n + 1 WHERE id = 1"),
    Shape::same("UPDATE of several rows", "UPDATE item SET n = n + 1 WHERE n < 9"),
    Shape::same("UPDATE of the key", "UPDATE item SET id = 50 WHERE id = 1"),
    Shape {
        name: "UPDATE of one table of two",
        postgres: Some("UPDATE item SET n = w.n FROM wanted w WHERE w.id = item.id"),
        mysql: Some("UPDATE item JOIN wanted w ON w.id = item.id SET item.n = w.n"),
        sqlite: Some("UPDATE item SET n = w.n FROM wanted w WHERE w.id = item.id"),
    },
    Shape::same("DELETE of one row by its key", "DELETE FROM item WHERE id = 1"),
    Shape::same("DELETE of a parent that has no children", "DELETE FROM parent WHERE id = 2"),
    Shape::same("DELETE of a parent, and two children along", "DELETE FROM parent WHERE id = 1"),
    Shape::same("INSERT, key given", "INSERT INTO item (id, code, n) VALUES (7, 'g', 1)"),
    Shape::same("INSERT, key generated", "INSERT INTO ticket (n) VALUES (1)"),
    Shape::same(
        "INSERT of three rows, keys generated",
        "INSERT INTO ticket (n) VALUES (1), (2), (3)",
    ),
    Shape::same("INSERT of a row that refers to another", "INSERT INTO line VALUES (7, 1)"),
    Shape::same(
        "INSERT of the rows of a query",
        "INSERT INTO item (id, code, n) SELECT id + 100, code || 'x', n FROM item",
    ),
    Shape {
        name: "INSERT into a table without a key",
        postgres: Some("INSERT INTO bag VALUES (1, 2)"),
        mysql: Some("INSERT INTO bag VALUES (1, 2)"),
        sqlite: None,
    },
    Shape {
        name: "INSERT that leaves existing rows alone",
        postgres: Some("INSERT INTO item VALUES (7, 'g', 1) ON CONFLICT DO NOTHING"),
        mysql: Some("INSERT IGNORE INTO item VALUES (7, 'g', 1)"),
        sqlite: Some("INSERT OR IGNORE INTO item VALUES (7, 'g', 1)"),
    },
    Shape {
        name: "upsert, with one unique index beside the key",
        postgres: Some(
            "INSERT INTO item VALUES (1, 'a', 1) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        ),
        mysql: Some("INSERT INTO item VALUES (1, 'a', 1) ON DUPLICATE KEY UPDATE n = VALUES(n)"),
        sqlite: Some(
            "INSERT INTO item VALUES (1, 'a', 1) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        ),
    },
    Shape {
        name: "REPLACE, with one unique index beside the key",
        postgres: None,
        mysql: Some("REPLACE INTO item VALUES (1, 'a', 1)"),
        sqlite: Some("REPLACE INTO item VALUES (1, 'a', 1)"),
    },
    Shape {
        name: "two writes by WITH",
        postgres: Some(
            "WITH taken AS (DELETE FROM item WHERE id = 1 RETURNING id, n) \
             INSERT INTO wanted SELECT id + 10, n FROM taken",
        ),
        mysql: None,
        sqlite: None,
    },
];

/// The tables; `{number}` stands for a number that the database generates.
const TABLES: &[&str] = &[
    "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, code VARCHAR(20) NOT NULL UNIQUE, \
     n BIGINT NOT NULL)",
    "CREATE TABLE wanted (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    "CREATE TABLE ticket ({number}, n BIGINT NOT NULL)",
    "CREATE TABLE owner (id BIGINT NOT NULL PRIMARY KEY)",
    "CREATE TABLE line (id BIGINT NOT NULL PRIMARY KEY, owner BIGINT NOT NULL, \
     FOREIGN KEY (owner) REFERENCES owner (id))",
    "CREATE TABLE parent (id BIGINT NOT NULL PRIMARY KEY)",
    "CREATE TABLE child (id BIGINT NOT NULL PRIMARY KEY, parent BIGINT NOT NULL, \
     FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
    "CREATE TABLE bag (a BIGINT, b BIGINT)",
    "INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
    "INSERT INTO wanted VALUES (1, 5), (2, 6)",
    "INSERT INTO owner VALUES (1)",
    "INSERT INTO parent VALUES (1), (2)",
    "INSERT INTO child VALUES (1, 1), (2, 1)",
];

#[tokio::test]
async fn the_page_tells_how_many_statements_are_sent() {
    tracing::subscriber::set_global_default(Counter).unwrap();
    let number = "id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY";
    let postgres = stage::<Postgres>(number).await;
    let mysql = stage::<MySql>("id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY").await;
    let sqlite = stage::<Sqlite>("id INTEGER PRIMARY KEY").await;
    let apart = mysql.handfast.at(mysql.pool.clone()).compound_statements(false).await.unwrap();
    let mut table = "\n| a branch of one statement | PostgreSQL | MariaDB | MySQL | SQLite |\n\
                     | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for shape in SHAPES {
        let cells = [
            sent(&postgres, &postgres.resource, shape.postgres).await,
            sent(&mysql, &mysql.resource, shape.mysql).await,
            sent(&mysql, &apart, shape.mysql).await,
            sent(&sqlite, &sqlite.resource, shape.sqlite).await,
        ];
        table += &format!("| {} | {} |\n", shape.name, cells.join(" | "));
    }
    let cells = [
        checked(&postgres.resource).await,
        checked(&mysql.resource).await,
        checked(&apart).await,
        checked(&sqlite.resource).await,
    ];
    let name = "UPDATE of one row by its key, by `checked()` outside of a global";
    table += &format!("| {name} | {} |\n", cells.join(" | "));
    let name = "UPDATE of one row by its key, as a single statement";
    let cells = [
        alone(&postgres, &postgres.resource, Position::Only).await,
        alone(&mysql, &mysql.resource, Position::Only).await,
        alone(&mysql, &apart, Position::Only).await,
        alone(&sqlite, &sqlite.resource, Position::Only).await,
    ];
    table += &format!("| {name} | {} |\n", cells.join(" | "));
    for (name, position) in [
        ("the same, as the last branch, which is the only one", Position::Only),
        ("the same, as the last branch behind another one", Position::BehindAnother),
    ] {
        let cells = [
            alone(&postgres, &postgres.resource.last(), position).await,
            alone(&mysql, &mysql.resource.last(), position).await,
            alone(&mysql, &apart.last(), position).await,
            alone(&sqlite, &sqlite.resource.last(), position).await,
        ];
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    let path = format!("{}/../docs/at.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let (above, rest) = page.split_once(BEGINS).expect("the page has the marker");
    let (_, below) = rest.split_once(ENDS).expect("the page has the marker of the end");
    expect_file![path].assert_eq(&format!("{above}{BEGINS}{table}\n{ENDS}{below}"));

    let mysql = Stage::on((read_committed::database().await, None), STOCK).await;
    a_guard_costs(&Stage::<Postgres>::new(STOCK).await, true, 0, 0).await;
    a_guard_costs(&mysql, true, 0, 0).await;
    guarded::disable(&mysql.pool, "stock").await.unwrap();
    a_guard_costs(&mysql, false, 20, 2).await;
}

const STOCK: &[&str] = &[
    "CREATE TABLE stock (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    "INSERT INTO stock VALUES (1, 1), (2, 2), (3, 3), (11, 1), (12, 2), (13, 3)",
    "INSERT INTO stock VALUES (21, 1), (22, 2), (23, 3), (31, 1), (32, 2), (33, 3)",
];

/// Requires that branches of a guarded table send so many statements more than before, once the
/// process knows of the guard. Writes rows from `first` to `first` + 20.
async fn a_guard_costs<DB: TestDatabase>(
    stage: &Stage<DB>,
    compounds: bool,
    first: usize,
    more: usize,
) {
    let before = changes_sent(stage, compounds, first).await;
    let (mode, start) = (GuardMode::Refuse, GuardStart::AtOnce);
    guarded::enable(&stage.pool, "stock", mode, start).await.unwrap();
    let guarded = changes_sent(stage, compounds, first + 10).await;
    assert_eq!(before.map(|count| count + more), guarded, "{}", DB::NAME_IN_TESTS);
}

/// Counts the statements of one branch for each kind of change. They belong to one global, which is
/// not ended: what phase two sends in the background would be counted too.
async fn changes_sent<DB: TestDatabase>(
    stage: &Stage<DB>,
    compounds: bool,
    first: usize,
) -> [usize; 4] {
    let resource = stage.handfast.at(stage.pool.clone()).compound_statements(compounds);
    let (resource, global) = (resource.await.unwrap(), stage.begin().await);
    let mut counts = [0; 4];
    // The first round describes the table.
    for id in [first + 1, first + 2] {
        let (last, new) = (first + 3, id + 5);
        let changes = [
            format!("UPDATE stock SET n = n + 1 WHERE id = {id}"),
            format!("UPDATE stock SET n = n + 1 WHERE id BETWEEN {id} AND {last}"),
            format!("DELETE FROM stock WHERE id = {id}"),
            format!("INSERT INTO stock VALUES ({new}, 1)"),
        ];
        for (count, sql) in counts.iter_mut().zip(&changes) {
            *count = counted(global.scope(transaction(&resource, sql))).await;
        }
    }
    // Left undecided.
    std::mem::forget(global);
    counts
}

async fn stage<DB: TestDatabase>(number: &str) -> Stage<DB> {
    let tables: Vec<String> =
        TABLES.iter().map(|table| table.replace("{number}", number)).collect();
    Stage::new(&tables.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// The statements of a plain local transaction.
const PLAIN: usize = 3;

/// Counts the statements of a branch whose tables are known.
async fn sent<DB: TestDatabase>(
    stage: &Stage<DB>,
    resource: &AtResource<DB>,
    sql: Option<&str>,
) -> String {
    let Some(sql) = sql else { return "–".to_owned() };
    branch(stage, resource, sql).await;
    (branch(stage, resource, sql).await + lacking(resource).await).to_string()
}

/// How many of its calls have no event, where the driver begins a local transaction.
async fn lacking<DB: TestDatabase>(resource: &AtResource<DB>) -> usize {
    // The library begins and commits branches by texts of its own there.
    if DB::NAME_IN_TESTS == "sqlite" {
        return 0;
    }
    PLAIN - counted(transaction(resource, "SELECT n FROM item")).await
}

/// The position of a branch in its global.
#[derive(Clone, Copy)]
enum Position {
    Only,
    BehindAnother,
}

/// Counts the statements of a single statement whose table and plan are known.
async fn alone<DB: TestDatabase>(
    stage: &Stage<DB>,
    resource: &AtResource<DB>,
    position: Position,
) -> String {
    let global = || stage.handfast.transaction("alone");
    let id = if DB::NAME_IN_TESTS == "postgres" { "$1" } else { "?" };
    let sql = format!("UPDATE item SET n = n + 1 WHERE id = {id}");
    let run = || DB::run_alone_with(resource, &sql, &[3]);
    let before = async || match position {
        Position::Only => Ok(0),
        Position::BehindAnother => DB::run_alone_with(&stage.resource, &sql, &[1]).await,
    };
    let known = global().run(async |tx| {
        before().await?;
        run().await?;
        Ok::<_, sqlx::Error>(tx.xid().cloned().unwrap())
    });
    stage.await_status(&known.await.unwrap(), |status| status == GlobalStatus::Committed).await;
    let lacking = lacking(resource).await;
    let counting = global().run(async |_tx| {
        before().await?;
        let sent_before = SENT.load(Ordering::SeqCst);
        run().await?;
        Ok::<_, sqlx::Error>(SENT.load(Ordering::SeqCst) - sent_before)
    });
    let sent = counting.await.unwrap();
    // One that begins and commits in the same call has no events that could be missing.
    if sent > 1 { (sent + lacking).to_string() } else { sent.to_string() }
}

/// Counts the statements of a local transaction that takes no part in globals and respects them.
async fn checked<DB: TestDatabase>(resource: &AtResource<DB>) -> String {
    let lacking = lacking(resource).await;
    let work = async {
        let mut local = resource.begin_checked().await?;
        DB::run(&mut local, "UPDATE item SET n = n + 1 WHERE id = 2").await?;
        local.commit().await
    };
    (counted(work).await + lacking).to_string()
}

/// Counts the driver's events of some work.
async fn counted(work: impl Future<Output = Result<(), sqlx::Error>>) -> usize {
    let before = SENT.load(Ordering::SeqCst);
    work.await.unwrap();
    SENT.load(Ordering::SeqCst) - before
}

async fn transaction<DB: TestDatabase>(
    resource: &AtResource<DB>,
    sql: &str,
) -> Result<(), sqlx::Error> {
    let mut local = resource.begin().await?;
    DB::run(&mut local, sql).await?;
    local.commit().await
}

/// Runs a statement in a branch, and rolls it back.
async fn branch<DB: TestDatabase>(
    stage: &Stage<DB>,
    resource: &AtResource<DB>,
    sql: &str,
) -> usize {
    let global = stage.begin().await;
    let sent = counted(global.scope(transaction(resource, sql))).await;
    stage.roll_back(global).await;
    sent
}
