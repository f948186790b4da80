//! Statements that are no change of rows, or whose text the planner does not take, and reads.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::Sqlite;
use sqlx::sqlite::SqlitePoolOptions;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id INTEGER PRIMARY KEY, item INT, n INT)",
        "CREATE TABLE chosen (id INTEGER PRIMARY KEY)",
        "INSERT INTO chosen VALUES (1)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
    ],
    tables: &[("item", &["id", "n", "name"]), ("other", &["id", "item", "n"])],
};

pub(super) const CASES: &[Case<Sqlite>] = &[
    Case::new(
        "SESSION-STATE",
        "PRAGMA case_sensitive_like = ON",
        "set it when the connection is made",
    )
    .on(with_case)
    .instead(&["UPDATE item SET n = 0 WHERE name NOT LIKE 'A'"])
    .same_as(&["UPDATE item SET n = 0"]),
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
        "PLACEHOLDER",
        "UPDATE item SET n = :n WHERE id = 1",
        "use either ? or ?1, ?2, ... throughout",
    )
    .bound(&[5])
    .instead_bound(&[("UPDATE item SET n = ? WHERE id = 1", &[5])])
    .same_as(&["UPDATE item SET n = 5 WHERE id = 1"]),
    Case::new(
        "PLACEHOLDER",
        "UPDATE item SET n = ? WHERE id = ?2",
        "use either ? or ?1, ?2, ... throughout",
    )
    .bound(&[5, 1])
    .instead_bound(&[("UPDATE item SET n = ?1 WHERE id = ?2", &[5, 1])]),
    Case::new(
        "CLAUSE",
        "UPDATE item AS hf_other SET n = 0 WHERE hf_other.id = 1",
        "give it another alias",
    )
    .instead(&["UPDATE item AS another SET n = 0 WHERE another.id = 1"]),
    Case::new("UNPARSED", "DELETE FROM item WHERE id IN chosen", "use a simpler form")
        .instead(&["DELETE FROM item WHERE id IN (SELECT id FROM chosen)"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other RETURNING id) SELECT id FROM gone",
        "execute each as a statement of its own",
    )
    .instead(&["DELETE FROM other RETURNING id"])
    .same_as(&["DELETE FROM other"]),
    Case::new(
        "CLAUSE",
        "WITH Item AS (SELECT 2 AS id) UPDATE item SET n = 0 WHERE id = 1",
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
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item SET n = other.n FROM other \
         WHERE item.id = other.item AND random() % 2 < 2",
        "or by a SELECT before",
    )
    .instead(&[
        "SELECT item.id FROM item JOIN other ON other.item = item.id WHERE random() % 2 < 2",
        "UPDATE item SET n = other.n FROM other WHERE item.id = other.item AND item.id IN (1, 2)",
    ]),
    Case::new(
        "LOCKING-READ",
        "WITH q AS (SELECT name FROM item WHERE id = 1) SELECT name FROM q FOR UPDATE",
        "it reads a WITH query; read the table itself",
    )
    .instead(&["SELECT name FROM item WHERE id = 1 FOR UPDATE"])
    .without_effect(),
    Case::new(
        "LOCKING-READ",
        "SELECT name FROM item WHERE id IN (SELECT item FROM other FOR UPDATE)",
        "a sub-select locks rows; lock them with a statement of its own",
    )
    .instead(&["SELECT item FROM other FOR UPDATE", "SELECT name FROM item WHERE id IN (1, 2)"])
    .without_effect(),
];

/// A resource whose connections are made with another setting.
fn with_case(stage: &Stage<Sqlite>) -> LocalBoxFuture<'_, AtResource<Sqlite>> {
    async move {
        let options = stage.pool.connect_options().as_ref().clone();
        let options = options.pragma("case_sensitive_like", "ON");
        let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
        stage.handfast.at(pool).await.unwrap()
    }
    .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
