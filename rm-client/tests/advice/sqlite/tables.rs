//! Tables that cannot be written in a branch as they are.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Pool, Sqlite};

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::{Stage, TestDatabase};

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT)",
        "CREATE VIEW shown AS SELECT id, n FROM item",
        "CREATE VIRTUAL TABLE searched USING fts5(body)",
        "CREATE TABLE bare (rowid INT NOT NULL, oid INT, _rowid_ INT, n INT)",
        "CREATE TABLE ignoring (id INTEGER PRIMARY KEY, n INT UNIQUE ON CONFLICT IGNORE)",
        "CREATE TABLE checked (id INTEGER PRIMARY KEY, n INT, CONSTRAINT positive CHECK (n > 0))",
        "CREATE TABLE watched (id INTEGER PRIMARY KEY, n INT, stamp INT)",
        "CREATE TABLE heeded (id INTEGER PRIMARY KEY, n INT)",
        "CREATE TABLE heard (n INT)",
        "CREATE TABLE guarded (id INTEGER PRIMARY KEY, n INT)",
        "CREATE TABLE coded (id INTEGER PRIMARY KEY, n INT, code INT UNIQUE)",
        "INSERT INTO item VALUES (1, 1), (2, 2)",
        "INSERT INTO bare VALUES (1, 1, 1, 1), (2, 2, 2, 2)",
        "INSERT INTO ignoring VALUES (1, 1)",
        "PRAGMA ignore_check_constraints = 1; INSERT INTO checked VALUES (1, -1), (2, 2); \
         PRAGMA ignore_check_constraints = 0",
        "INSERT INTO watched VALUES (1, 1, 2), (2, 2, 2)",
        "INSERT INTO coded VALUES (1, 1, 1), (2, 2, 2)",
        "CREATE TRIGGER stamps AFTER UPDATE OF n ON watched BEGIN \
         UPDATE watched SET stamp = (SELECT max(n) FROM item) WHERE rowid = NEW.rowid; END",
        "CREATE TRIGGER heeds AFTER DELETE ON heeded BEGIN INSERT INTO heard VALUES (1); END",
        "CREATE TRIGGER guards AFTER INSERT ON guarded BEGIN \
         SELECT RAISE(ABORT, 'below zero') WHERE NEW.n < 0; END",
        "INSERT INTO guarded VALUES (1, 1)",
        "CREATE TRIGGER codes AFTER INSERT ON coded BEGIN \
         UPDATE coded SET code = NEW.n WHERE rowid = NEW.rowid; END",
    ],
    tables: &[
        ("item", &["id", "n"]),
        ("bare", &["rowid", "oid", "_rowid_", "n"]),
        ("ignoring", &["id", "n"]),
        ("checked", &["id", "n"]),
        ("watched", &["id", "n", "stamp"]),
        ("heeded", &["id", "n"]),
        ("heard", &["n"]),
        ("guarded", &["id", "n"]),
        ("coded", &["id", "n", "code"]),
    ],
};

pub(super) const CASES: &[Case<Sqlite>] = &[
    Case::new("NOT-A-TABLE", "UPDATE shown SET n = 0 WHERE id = 1", "is a view")
        .instead(&["UPDATE item SET n = 0 WHERE id = 1"])
        .same_as(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new(
        "NOT-A-TABLE",
        "INSERT INTO searched VALUES ('a')",
        "is a foreign or virtual table, whose rows cannot be imaged: write to an ordinary table",
    )
    .instead(&["INSERT INTO item VALUES (3, 3)"])
    .same_as(&["INSERT INTO item VALUES (3, 3)"]),
    Case::new("NO-PRIMARY-KEY", "UPDATE bare SET n = 5 WHERE oid = 1", "add one")
        .outside(&["CREATE UNIQUE INDEX bare_key ON bare (rowid)"])
        .again(),
    Case::new("KEY-COLLATION", "UPDATE odd SET n = 5", "use a deterministic collation")
        .refused_on(with_collation)
        .without_effect()
        .by(with_built_in_collation),
    Case::new(
        "REWRITTEN",
        "INSERT INTO ignoring VALUES (3, 3)",
        "take them out, and say in the statement what it is to do",
    )
    .outside(&[
        "CREATE TABLE plain (id INTEGER PRIMARY KEY, n INT UNIQUE)",
        "INSERT INTO plain SELECT * FROM ignoring",
        "DROP TABLE ignoring; ALTER TABLE plain RENAME TO ignoring",
    ])
    .instead(&["INSERT OR IGNORE INTO ignoring VALUES (3, 3)"]),
    Case::new(
        "ROW-BREAKS-CONSTRAINT",
        "DELETE FROM checked WHERE id = 1",
        "repair it outside of a global transaction first",
    )
    .outside(&["UPDATE checked SET n = 1 WHERE id = 1"])
    .again(),
    Case::new(
        "TRIGGER",
        "UPDATE watched SET n = 7",
        "trigger stamps may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "DELETE FROM heeded",
        "trigger heeds may write unseen: declare it as writing its own row only, or disable it",
    )
    .outside(&["DROP TRIGGER heeds"])
    .instead(&["INSERT INTO heeded VALUES (3, 3)", "UPDATE heeded SET n = 4"])
    .same_as(&["INSERT INTO heeded VALUES (3, 4)"]),
    Case::new(
        "TRIGGER",
        "INSERT INTO heeded VALUES (3, 3)",
        "(by DELETE), and may write unseen: declare it as writing its own row only, or disable it",
    )
    .outside(&["DROP TRIGGER heeds"])
    .again(),
    Case::new(
        "TRIGGER",
        "DELETE FROM guarded",
        "(by INSERT), and may refuse that: declare it as trusted if it never does",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO coded VALUES (1, 1, 0) ON CONFLICT (id) DO UPDATE SET n = 7",
        "trigger codes may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
];

/// A resource that trusts the triggers.
fn trusting(stage: &Stage<Sqlite>) -> LocalBoxFuture<'_, AtResource<Sqlite>> {
    async move {
        let names = ["stamps", "guards", "codes"];
        let resource = stage.handfast.at(stage.pool.clone());
        names.into_iter().fold(resource, |at, name| at.trust_trigger(name)).await.unwrap()
    }
    .boxed_local()
}

/// A pool whose connections know a collation of the application.
async fn collating(stage: &Stage<Sqlite>) -> Pool<Sqlite> {
    let options: SqliteConnectOptions = stage.pool.connect_options().as_ref().clone();
    let options = options.collation("backwards", |one, other| other.cmp(one));
    SqlitePoolOptions::new().connect_with(options).await.unwrap()
}

fn with_collation(stage: &Stage<Sqlite>) -> LocalBoxFuture<'_, AtResource<Sqlite>> {
    async move {
        let pool = collating(stage).await;
        for sql in [
            "CREATE TABLE odd (id TEXT COLLATE backwards PRIMARY KEY, n INT)",
            "INSERT INTO odd VALUES ('a', 1), ('b', 2)",
        ] {
            Sqlite::raw(&pool, sql).await.unwrap();
        }
        stage.handfast.at(pool).await.unwrap()
    }
    .boxed_local()
}

/// The table is not among those that are compared: the stage does not know the collation.
fn with_built_in_collation(stage: &Stage<Sqlite>) -> LocalBoxFuture<'_, ()> {
    async move {
        let pool = collating(stage).await;
        for sql in [
            "CREATE TABLE plain (id TEXT PRIMARY KEY, n INT)",
            "INSERT INTO plain SELECT * FROM odd",
            "DROP TABLE odd; ALTER TABLE plain RENAME TO odd",
        ] {
            Sqlite::raw(&pool, sql).await.unwrap();
        }
        // Open connections still know the table as it was.
        let pool = Sqlite::again(&stage.pool).await;
        let resource = stage.handfast.at(pool.clone()).await.unwrap();
        let read = || Sqlite::raw_rows(&pool, "SELECT id, n FROM odd ORDER BY id");
        let before = read().await.unwrap();
        let global = stage.begin().await;
        global.scope(Sqlite::run_alone(&resource, "UPDATE odd SET n = 5")).await.unwrap();
        assert_ne!(read().await.unwrap(), before);
        stage.roll_back(global).await;
        assert_eq!(read().await.unwrap(), before);
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
