//! Statements that are refused on every database in the same words.

use std::marker::PhantomData;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use sqlx::{MySql, Postgres, Sqlite};

use super::case::{Case, Setup};
use super::run::check;
use crate::at::{Stage, TestDatabase};

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, n INT, name VARCHAR(20))",
        "CREATE TABLE other (id BIGINT NOT NULL PRIMARY KEY, item BIGINT, n INT, \
         name VARCHAR(20))",
        "CREATE TABLE team (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE member (id BIGINT NOT NULL PRIMARY KEY, team BIGINT, \
         FOREIGN KEY (team) REFERENCES team (id) ON UPDATE CASCADE)",
        "CREATE TABLE place (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE visit (id BIGINT NOT NULL PRIMARY KEY, place BIGINT, \
         FOREIGN KEY (place) REFERENCES place (id))",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5, 'x'), (2, 2, 6, 'y'), (3, 3, 7, 'z')",
        "INSERT INTO team VALUES (1, 'red'), (2, 'blue')",
        "INSERT INTO member VALUES (1, 1), (2, 1), (3, 2)",
        "INSERT INTO place VALUES (1, 'here'), (2, 'there')",
        "INSERT INTO visit VALUES (1, 1)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n", "name"]),
        ("team", &["id", "name"]),
        ("member", &["id", "team"]),
        ("place", &["id", "name"]),
        ("visit", &["id", "place"]),
    ],
};

struct Everywhere<DB>(PhantomData<DB>);

impl<DB: TestDatabase> Everywhere<DB> {
    const CASES: &'static [Case<DB>] = &[
        Case::new("DDL", "CREATE INDEX other_n ON other (n)", "execute it outside of a global")
            .outside(&["CREATE INDEX other_n ON other (n)"])
            .without_effect(),
        Case::new("TRANSACTION-CONTROL", "COMMIT", "use the methods of the local transaction")
            .without_effect()
            .by(by_methods),
        Case::new("TRANSACTION-CONTROL", "ROLLBACK", "use the methods of the local transaction")
            .without_effect()
            .by(by_methods),
        Case::new("UNKNOWN-COLUMN", "UPDATE item SET nam = 'x' WHERE id = 1", "correct the name")
            .instead(&["UPDATE item SET name = 'x' WHERE id = 1"])
            .same_as(&["UPDATE item SET name = 'x' WHERE id = 1"]),
        Case::new("CLAUSE", "UPDATE a.b.item SET n = 0", "name the schema and the table")
            .instead(&["UPDATE item SET n = 0"])
            .same_as(&["UPDATE item SET n = 0"]),
        Case::new(
            "UNCHECKED-READ",
            "UPDATE item SET n = 0 WHERE id IN (SELECT item FROM other WHERE n > 5)",
            "read the rows of each table by a statement of its own",
        )
        .committed()
        .instead(&[
            "SELECT item FROM other WHERE n > 5",
            "UPDATE item SET n = 0 WHERE id IN (2, 3)",
        ]),
        Case::new(
            "UNCHECKED-READ",
            "INSERT INTO item SELECT id + 10, n, name FROM other WHERE id < 3",
            "read the rows of each table by a statement of its own",
        )
        .committed()
        .instead(&[
            "SELECT id, n, name FROM other WHERE id < 3",
            "INSERT INTO item VALUES (11, 5, 'x'), (12, 6, 'y')",
        ]),
        Case::new(
            "LOCKING-READ",
            "SELECT name FROM item WHERE id IN (SELECT item FROM other WHERE n > 6)",
            "a sub-select reads a table unchecked; read the rows of each table by itself",
        )
        .committed()
        .instead(&["SELECT item FROM other WHERE n > 6", "SELECT name FROM item WHERE id = 3"])
        .same_answer(),
        Case::new(
            "LOCKING-READ",
            "SELECT name FROM item WHERE id = 1 UNION ALL SELECT name FROM other WHERE id = 1",
            "it reads more than plain rows of tables; lock the rows of each table by itself",
        )
        .committed()
        .instead(&["SELECT name FROM item WHERE id = 1", "SELECT name FROM other WHERE id = 1"])
        .without_effect(),
        Case::new(
            "CASCADE",
            "UPDATE team SET id = 9 WHERE id = 1",
            "insert a row with the other value, point those rows to it, and delete the old row",
        )
        .instead(&[
            "INSERT INTO team VALUES (9, 'red')",
            "UPDATE member SET team = 9 WHERE team = 1",
            "DELETE FROM team WHERE id = 1",
        ]),
        Case::new(
            "KEY-CHANGED",
            "UPDATE place SET id = 9 WHERE id = 2",
            "insert the row under its other key, let the rows that refer to it follow, and delete \
             it under the old one",
        )
        .too_late()
        .instead(&["INSERT INTO place VALUES (9, 'there')", "DELETE FROM place WHERE id = 2"]),
    ];
}

pub(super) fn cases<DB: TestDatabase>() -> &'static [Case<DB>] {
    Everywhere::<DB>::CASES
}

/// Ends a local transaction in both ways, and goes back to a savepoint.
fn by_methods<DB: TestDatabase>(stage: &Stage<DB>) -> LocalBoxFuture<'_, ()> {
    async move {
        let before = stage.dump("item", &["id", "n"]).await;
        let global = stage.begin().await;
        let ends = async {
            let mut local = stage.resource.begin().await.unwrap();
            DB::run(&mut local, "DELETE FROM item").await.unwrap();
            local.rollback().await.unwrap();
            assert_eq!(stage.dump("item", &["id", "n"]).await, before);
            let mut local = stage.resource.begin().await.unwrap();
            for sql in [
                "UPDATE item SET n = 11 WHERE id = 1",
                "SAVEPOINT one",
                "DELETE FROM item",
                "ROLLBACK TO SAVEPOINT one",
            ] {
                DB::run(&mut local, sql).await.unwrap();
            }
            local.commit().await.unwrap();
        };
        global.scope(ends).await;
        let changed = stage.value("SELECT n FROM item WHERE id = 1").await;
        assert_eq!(changed.as_deref(), Some("11"));
        stage.roll_back(global).await;
        assert_eq!(stage.dump("item", &["id", "n"]).await, before);
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_on_postgres() {
    check::<Postgres>(&SETUP, cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_on_mysql() {
    check::<MySql>(&SETUP, cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_on_sqlite() {
    check::<Sqlite>(&SETUP, cases()).await;
}
