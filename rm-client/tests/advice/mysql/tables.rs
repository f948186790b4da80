//! Tables that cannot be written in a branch as they are.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::MySql;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::{Stage, TestDatabase};

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE bare (id BIGINT NOT NULL, n INT)",
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT)",
        "CREATE VIEW shown AS SELECT id, n FROM item",
        "CREATE TABLE flat (id BIGINT PRIMARY KEY, n INT) ENGINE = MyISAM",
        "CREATE TABLE checked (id BIGINT PRIMARY KEY, n INT, CONSTRAINT positive CHECK (n > 0))",
        "CREATE TABLE tree (id BIGINT PRIMARY KEY, above BIGINT, \
         FOREIGN KEY (above) REFERENCES tree (id))",
        "CREATE TABLE watched (id BIGINT PRIMARY KEY, n INT, stamp INT)",
        "CREATE TABLE heeded (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE guarded (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE filled (id BIGINT PRIMARY KEY, n INT, stamp INT)",
        "CREATE TABLE coded (id BIGINT PRIMARY KEY, n INT, code INT UNIQUE)",
        "INSERT INTO bare VALUES (1, 1), (2, 2)",
        "INSERT INTO item VALUES (1, 1), (2, 2)",
        "INSERT INTO flat VALUES (1, 1), (2, 2)",
        "SET SESSION check_constraint_checks = 0; INSERT INTO checked VALUES (1, -1), (2, 2); \
         SET SESSION check_constraint_checks = 1",
        "INSERT INTO watched VALUES (1, 1, 2), (2, 2, 4)",
        "INSERT INTO filled VALUES (1, 1, 901), (2, 2, 902)",
        "INSERT INTO coded VALUES (1, 1, 1), (2, 2, 2)",
        "CREATE FUNCTION twice(n INT) RETURNS INT DETERMINISTIC RETURN n * 2",
        "CREATE TRIGGER stamps BEFORE UPDATE ON watched FOR EACH ROW \
         SET NEW.stamp = twice(NEW.n)",
        "CREATE TRIGGER heeds BEFORE DELETE ON heeded FOR EACH ROW SET @heard = twice(OLD.n)",
        "CREATE TRIGGER guards BEFORE DELETE ON guarded FOR EACH ROW \
         IF OLD.n < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'kept'; END IF",
        "CREATE TRIGGER fills BEFORE UPDATE ON filled FOR EACH ROW SET NEW.stamp = 900 + NEW.n",
        "CREATE TRIGGER codes BEFORE INSERT ON coded FOR EACH ROW SET NEW.code = NEW.n",
    ],
    tables: &[
        ("bare", &["id", "n"]),
        ("item", &["id", "n"]),
        ("checked", &["id", "n"]),
        ("tree", &["id", "above"]),
        ("watched", &["id", "n", "stamp"]),
        ("heeded", &["id", "n"]),
        ("guarded", &["id", "n"]),
        ("filled", &["id", "n", "stamp"]),
        ("coded", &["id", "n", "code"]),
    ],
};

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new("NO-PRIMARY-KEY", "UPDATE bare SET n = 5 WHERE id = 1", "add one")
        .outside(&["ALTER TABLE bare ADD PRIMARY KEY (id)"])
        .again(),
    Case::new("NOT-A-TABLE", "UPDATE shown SET n = 0 WHERE id = 1", "is a view")
        .instead(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new("NOT-A-TABLE", "UPDATE flat SET n = 5", "an ordinary table, with transactions")
        .without_effect()
        .by(with_transactions),
    Case::new(
        "ROW-BREAKS-CONSTRAINT",
        "DELETE FROM checked WHERE id = 1",
        "repair it outside of a global transaction first",
    )
    .outside(&["UPDATE checked SET n = 1 WHERE id = 1"])
    .again(),
    Case::new(
        "ROW-REFERS-TO-ITSELF",
        "INSERT INTO tree VALUES (3, 3)",
        "insert it without the reference and set that by an UPDATE",
    )
    .too_late()
    .instead(&["INSERT INTO tree VALUES (3, NULL)", "UPDATE tree SET above = 3 WHERE id = 3"]),
    Case::new(
        "TRIGGER",
        "UPDATE watched SET n = 7",
        "trigger stamps may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO heeded VALUES (3, 3)",
        "(by DELETE), and may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new("TRIGGER", "INSERT INTO heeded VALUES (3, 3)", "or disable it")
        .outside(&["DROP TRIGGER heeds"])
        .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO guarded VALUES (3, 3)",
        "(by DELETE), and may refuse that: declare it as trusted if it never does",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "UPDATE filled SET n = 7",
        "what it fills in would not come back: declare it as trusted if that does not matter",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO coded VALUES (1, 1, 0) ON DUPLICATE KEY UPDATE n = 7",
        "trigger codes may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
];

/// A resource that trusts the triggers.
fn trusting(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    async move {
        let names = ["stamps", "heeds", "guards", "fills", "codes"];
        let resource = stage.handfast.at(stage.pool.clone());
        names.into_iter().fold(resource, |at, name| at.trust_trigger(name)).await.unwrap()
    }
    .boxed_local()
}

/// A table without transactions cannot be among those that are compared: nothing takes back what
/// the refused statement does there without the library.
fn with_transactions(stage: &Stage<MySql>) -> LocalBoxFuture<'_, ()> {
    async move {
        MySql::raw(&stage.pool, "ALTER TABLE flat ENGINE = InnoDB").await.unwrap();
        let resource = stage.handfast.at(stage.pool.clone()).await.unwrap();
        let before = stage.dump("flat", &["id", "n"]).await;
        let global = stage.begin().await;
        global.scope(MySql::run_alone(&resource, "UPDATE flat SET n = 5")).await.unwrap();
        assert_ne!(stage.dump("flat", &["id", "n"]).await, before);
        stage.roll_back(global).await;
        assert_eq!(stage.dump("flat", &["id", "n"]).await, before);
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
