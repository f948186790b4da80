//! Statements that are no change of rows, or whose text the planner does not take.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::MySql;
use sqlx::mysql::MySqlPoolOptions;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name VARCHAR(20))",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE moment (id BIGINT PRIMARY KEY, at TIMESTAMP NULL)",
        "CREATE TABLE part (id BIGINT PRIMARY KEY, n INT) \
         PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (100))",
        "CREATE PROCEDURE raise_all(more INT) UPDATE item SET n = n + more",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("moment", &["id", "at"]),
        ("part", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new("DDL", "TRUNCATE other", "execute it outside of a global transaction")
        .outside(&["TRUNCATE other"])
        .same_as(&["DELETE FROM other"]),
    Case::new("EXPLAIN-ANALYZE", "ANALYZE UPDATE item SET n = 0", "explain it without ANALYZE")
        .instead(&["EXPLAIN UPDATE item SET n = 0"])
        .without_effect(),
    Case::new("TRANSACTION-CONTROL", "XA START 'one'", "use the methods of the local transaction")
        .instead(&["UPDATE item SET n = 0"])
        .same_as(&["UPDATE item SET n = 0"]),
    Case::new("UNKNOWN-STATEMENT", "HANDLER item OPEN", "or execute it outside")
        .outside(&["HANDLER item OPEN"])
        .without_effect(),
    Case::new(
        "UNKNOWN-STATEMENT",
        "INSERT INTO part PARTITION (low) VALUES (3, 3)",
        "write it as a plain SELECT, INSERT, UPDATE or DELETE",
    )
    .instead(&["INSERT INTO part VALUES (3, 3)"]),
    Case::new("SESSION-STATE", "SET time_zone = '+02:00'", "set it when the connection is made")
        .on(with_time_zone)
        .instead(&["INSERT INTO moment VALUES (1, '2026-01-01 02:00:00')"])
        .same_as(&["INSERT INTO moment VALUES (1, '2026-01-01 00:00:00')"]),
    Case::new("PROCEDURE", "CALL raise_all(1)", "send its statements themselves")
        .instead(&["UPDATE item SET n = n + 1"]),
    Case::new("PROCEDURE", "EXECUTE emptying", "send its statements themselves")
        .instead(&["DELETE FROM other"])
        .same_as(&["PREPARE emptying FROM 'DELETE FROM other'", "EXECUTE emptying"]),
    Case::new(
        "EXPLAIN-ANALYZE",
        "EXPLAIN ANALYZE UPDATE item SET n = 0",
        "explain it without ANALYZE",
    )
    .instead(&["EXPLAIN UPDATE item SET n = 0"])
    .without_effect(),
    Case::new(
        "BULK-LOAD",
        "LOAD DATA INFILE 'other' INTO TABLE other",
        "use INSERT with several rows",
    )
    .instead(&["INSERT INTO other VALUES (8, 1, 1), (9, 2, 2)"])
    .same_as(&["INSERT INTO other VALUES (8, 1, 1), (9, 2, 2)"]),
    Case::new("TABLE-LOCK", "LOCK TABLES item WRITE", "lock rows with SELECT ... FOR UPDATE")
        .instead(&["SELECT id FROM item FOR UPDATE"])
        .without_effect(),
    Case::new(
        "SEVERAL-STATEMENTS",
        "UPDATE item SET n = ? WHERE id = 1; DELETE FROM other WHERE id = ?",
        "execute them one by one",
    )
    .bound(&[5, 2])
    .instead_bound(&[
        ("UPDATE item SET n = ? WHERE id = 1", &[5]),
        ("DELETE FROM other WHERE id = ?", &[2]),
    ])
    .same_as(&["UPDATE item SET n = 5 WHERE id = 1", "DELETE FROM other WHERE id = 2"]),
    Case::new("ARGUMENT-COUNT", "UPDATE item SET n = ? WHERE id = ?", "bind one for each")
        .bound(&[5])
        .instead_bound(&[("UPDATE item SET n = ? WHERE id = ?", &[5, 1])])
        .same_as(&["UPDATE item SET n = 5 WHERE id = 1"]),
    Case::new(
        "UNPARSED",
        "DELETE other FROM other JOIN item ON item.id = other.item ORDER BY other.id LIMIT 1",
        "use a simpler form",
    )
    .instead(&["DELETE FROM other WHERE item IN (SELECT id FROM item) ORDER BY id LIMIT 1"])
    .same_as(&["DELETE FROM other WHERE id = 1"]),
    Case::new(
        "UNPARSED",
        "UPDATE item SET name = 'a\0b' WHERE id = 1",
        "it contains a NUL character, which an argument can bring",
    )
    .instead(&["UPDATE item SET name = 'a\\0b' WHERE id = 1"]),
    Case::new(
        "EXECUTABLE-COMMENT",
        "UPDATE item SET n = 0 /*! WHERE id = 1 */",
        "write it plainly",
    )
    .instead(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other RETURNING id) SELECT id FROM gone",
        "execute each as a statement of its own",
    )
    .instead(&["DELETE FROM other RETURNING id"])
    .same_as(&["DELETE FROM other"]),
    Case::new(
        "CLAUSE",
        "UPDATE item AS hf_other SET n = 0 WHERE hf_other.id = 1",
        "give it another alias",
    )
    .instead(&["UPDATE item AS another SET n = 0 WHERE another.id = 1"]),
    Case::new("CLAUSE", "SELECT n INTO @n FROM item WHERE id = 1", "read the rows")
        .instead(&["SELECT n FROM item WHERE id = 1"])
        .without_effect(),
    Case::new("CLAUSE", "UPDATE IGNORE item SET n = 0 WHERE id = 1", "leave it out")
        .instead(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new("CLAUSE", "DELETE QUICK FROM item WHERE id = 1", "leave it out")
        .instead(&["DELETE FROM item WHERE id = 1"]),
    Case::new("CLAUSE", "UPDATE (SELECT * FROM item) AS q SET q.n = 0", "name one table")
        .instead(&["UPDATE item SET n = 0"])
        .same_as(&["UPDATE item SET n = 0"]),
    Case::new(
        "CLAUSE",
        "UPDATE item SET n = 0 WHERE id = 1 RETURNING name",
        "read the rows with a SELECT",
    )
    .instead(&["UPDATE item SET n = 0 WHERE id = 1", "SELECT name FROM item WHERE id = 1"])
    .same_as(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new(
        "UNPARSED",
        "DELETE FROM item ORDER BY id LIMIT 1 RETURNING name",
        "use a simpler form",
    )
    .instead(&[
        "SELECT id, name FROM item ORDER BY id LIMIT 1 FOR UPDATE",
        "DELETE FROM item WHERE id = 1",
    ]),
];

/// A resource whose connections are made with another time zone.
fn with_time_zone(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    async move {
        let options = stage.pool.connect_options().as_ref().clone();
        let options = options.timezone(Some("+02:00".to_owned()));
        let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
        stage.handfast.at(pool).await.unwrap()
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
