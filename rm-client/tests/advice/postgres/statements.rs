//! Statements that are no change of rows, or whose text the planner does not take.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::{AtResource, outbox::Event};
use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE copied (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE counted (id BIGINT PRIMARY KEY, n INT, \
         no INT GENERATED ALWAYS AS IDENTITY)",
        "CREATE SCHEMA apart",
        "CREATE TABLE apart.note (id BIGINT PRIMARY KEY, n INT)",
        "CREATE PROCEDURE raise_all(more INT) LANGUAGE sql AS 'UPDATE item SET n = n + more'",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO counted VALUES (1, 1), (2, 2)",
        "INSERT INTO apart.note VALUES (1, 1)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("copied", &["id", "n", "name"]),
        ("counted", &["id", "n", "no"]),
        ("apart.note", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new("DDL", "TRUNCATE other", "execute it outside of a global transaction")
        .outside(&["TRUNCATE other"]),
    Case::new("UNKNOWN-STATEMENT", "LISTEN shop", "or execute it outside")
        .outside(&["LISTEN shop"])
        .without_effect(),
    Case::new(
        "UNKNOWN-STATEMENT",
        "DECLARE c CURSOR FOR SELECT name FROM item",
        "write it as a plain SELECT, INSERT, UPDATE or DELETE",
    )
    .instead(&["SELECT name FROM item"])
    .without_effect(),
    Case::new(
        "SESSION-STATE",
        "SET search_path TO apart, public",
        "set it when the connection is made",
    )
    .on(with_other_path)
    .instead(&["UPDATE note SET n = 2"])
    .same_as(&["UPDATE apart.note SET n = 2"]),
    Case::new(
        "SESSION-STATE",
        "SELECT set_config('search_path', 'apart, public', true)",
        "set it when the connection is made",
    )
    .on(with_other_path)
    .instead(&["DELETE FROM note"])
    .same_as(&["DELETE FROM apart.note"]),
    Case::new("NOTIFY", "NOTIFY shop, 'sold'", "emit an event of the outbox")
        .without_effect()
        .by(by_event),
    Case::new("NOTIFY", "SELECT pg_notify('shop', 'sold')", "emit an event of the outbox")
        .without_effect()
        .by(by_event),
    Case::new("PROCEDURE", "CALL raise_all(1)", "send its statements themselves")
        .instead(&["UPDATE item SET n = n + 1"]),
    Case::new(
        "PROCEDURE",
        "DO $$ BEGIN DELETE FROM other; END $$",
        "send its statements themselves",
    )
    .instead(&["DELETE FROM other"]),
    Case::new("PROCEDURE", "EXECUTE emptying", "send its statements themselves")
        .instead(&["DELETE FROM other"])
        .same_as(&["PREPARE emptying AS DELETE FROM other", "EXECUTE emptying"]),
    Case::new(
        "EXPLAIN-ANALYZE",
        "EXPLAIN ANALYZE UPDATE item SET n = 0",
        "explain it without ANALYZE",
    )
    .instead(&["EXPLAIN UPDATE item SET n = 0"])
    .without_effect(),
    Case::new("BULK-LOAD", "COPY other FROM STDIN", "use INSERT with several rows")
        .instead(&["INSERT INTO other VALUES (8, 1, 1), (9, 2, 2)"])
        .same_as(&["INSERT INTO other VALUES (8, 1, 1), (9, 2, 2)"]),
    Case::new(
        "TABLE-LOCK",
        "LOCK TABLE item IN SHARE ROW EXCLUSIVE MODE",
        "lock rows with SELECT ... FOR UPDATE",
    )
    .instead(&["SELECT id FROM item FOR UPDATE"])
    .without_effect(),
    Case::new(
        "SEVERAL-STATEMENTS",
        "UPDATE item SET n = $1 WHERE id = 1; DELETE FROM other WHERE id = $2",
        "execute them one by one",
    )
    .bound(&[5, 2])
    .instead_bound(&[
        ("UPDATE item SET n = $1 WHERE id = 1", &[5]),
        ("DELETE FROM other WHERE id = $1", &[2]),
    ])
    .same_as(&["UPDATE item SET n = 5 WHERE id = 1", "DELETE FROM other WHERE id = 2"]),
    Case::new("ARGUMENT-COUNT", "UPDATE item SET n = $1 WHERE id = $2", "bind one for each")
        .bound(&[5])
        .instead_bound(&[("UPDATE item SET n = $1 WHERE id = $2", &[5, 1])])
        .same_as(&["UPDATE item SET n = 5 WHERE id = 1"]),
    Case::new("PLACEHOLDER", "UPDATE item SET n = $0 WHERE id = 1", "use $1, $2, ...")
        .bound(&[5])
        .instead_bound(&[("UPDATE item SET n = $1 WHERE id = 1", &[5])])
        .same_as(&["UPDATE item SET n = 5 WHERE id = 1"]),
    Case::new("UNPARSED", "DELETE FROM item WHERE CURRENT OF c", "use a simpler form")
        .instead(&["DELETE FROM item WHERE id = 1"])
        .same_as(&["DELETE FROM item WHERE id = 1"]),
    Case::new("CLAUSE", "SELECT * INTO copied FROM item", "read the rows and INSERT them")
        .instead(&["INSERT INTO copied SELECT * FROM item"])
        .same_as(&["DROP TABLE copied", "SELECT * INTO copied FROM item"]),
    Case::new(
        "CLAUSE",
        "WITH item AS (SELECT 2 AS id) UPDATE item SET n = 0 WHERE id = 1",
        "give it another name",
    )
    .instead(&["WITH gone AS (SELECT 2 AS id) UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new(
        "CLAUSE",
        "DELETE FROM item ORDER BY id LIMIT 1",
        "choose the rows by a sub-select in WHERE",
    )
    .instead(&["DELETE FROM item WHERE id IN (SELECT id FROM item ORDER BY id LIMIT 1)"])
    .same_as(&["DELETE FROM item WHERE id = 1"]),
    Case::new("CLAUSE", "UPDATE counted SET no = DEFAULT, n = 5", "leave it as it is")
        .instead(&["UPDATE counted SET n = 5"])
        .same_as(&["UPDATE counted SET n = 5"]),
];

/// A resource whose connections are made with another search path.
fn with_other_path(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    async move {
        let options = stage.pool.connect_options().as_ref().clone();
        let options = options.options([("search_path", "apart,public")]);
        let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
        stage.handfast.at(pool).await.unwrap()
    }
    .boxed_local()
}

/// An event goes out if the global commits, and is gone if it is rolled back.
fn by_event(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, ()> {
    async move {
        for (commits, left) in [(false, "0"), (true, "1")] {
            let global = stage.begin().await;
            let emits = async {
                let mut local = stage.resource.begin().await.unwrap();
                local.emit(&Event::new("shop", "1").payload("sold")).await.unwrap();
                local.commit().await.unwrap();
            };
            global.scope(emits).await;
            if commits {
                stage.commit(global).await;
            } else {
                stage.roll_back(global).await;
            }
            let events = stage.value("SELECT COUNT(*) FROM event_outbox").await;
            assert_eq!(events.as_deref(), Some(left));
        }
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
