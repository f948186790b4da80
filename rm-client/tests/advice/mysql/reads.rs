//! Reads whose rows cannot be locked globally.

use sqlx::MySql;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name VARCHAR(20))",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, name VARCHAR(20))",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 'x')",
    ],
    tables: &[("item", &["id", "n", "name"]), ("other", &["id", "item", "name"])],
};

const LOCK: &str = "SELECT name FROM item WHERE id = 1 FOR UPDATE";

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new(
        "LOCKING-READ",
        "WITH q AS (SELECT name FROM item WHERE id = 1) SELECT name FROM q FOR UPDATE",
        "it reads a WITH query; read the table itself",
    )
    .instead(&[LOCK])
    .same_answer(),
    Case::new(
        "LOCKING-READ",
        "SELECT name FROM (SELECT name FROM item WHERE id = 1) q FOR UPDATE",
        "it reads more than plain rows of tables; lock the rows of each table by itself",
    )
    .instead(&[LOCK])
    .same_answer(),
    Case::new(
        "LOCKING-READ",
        "SELECT name FROM item WHERE id = 1 UNION SELECT name FROM other WHERE id = 1 FOR UPDATE",
        "it reads more than plain rows of tables; lock the rows of each table by itself",
    )
    .instead(&[LOCK, "SELECT name FROM other WHERE id = 1 FOR UPDATE"])
    .without_effect(),
    Case::new(
        "LOCKING-READ",
        "SELECT name FROM other WHERE item IN (SELECT id FROM item WHERE n = 10 FOR UPDATE)",
        "a sub-select locks rows; lock them with a statement of its own",
    )
    .instead(&[
        "SELECT id FROM item WHERE n = 10 FOR UPDATE",
        "SELECT name FROM other WHERE item IN (SELECT id FROM item WHERE n = 10)",
    ])
    .same_answer(),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
