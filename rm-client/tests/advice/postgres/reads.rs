//! Reads whose rows cannot be locked globally.

use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, name TEXT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 'x')",
    ],
    tables: &[("item", &["id", "n", "name"]), ("other", &["id", "item", "name"])],
};

const LOCK: &str = "SELECT name FROM item WHERE id = 1 FOR UPDATE";

pub(super) const CASES: &[Case<Postgres>] = &[
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
        "SELECT name FROM other WHERE item IN (SELECT id FROM item WHERE n = 10 FOR UPDATE)",
        "a sub-select locks rows; lock them with a statement of its own",
    )
    .instead(&[
        "SELECT id FROM item WHERE n = 10 FOR UPDATE",
        "SELECT name FROM other WHERE item IN (SELECT id FROM item WHERE n = 10)",
    ])
    .same_answer(),
    Case::new(
        "LOCKING-READ",
        "SELECT name, row_number() OVER (ORDER BY id) FROM item FOR UPDATE",
        "it computes over a window; read the rows first and compute from them",
    )
    .instead(&["SELECT name FROM item ORDER BY id FOR UPDATE"])
    .without_effect(),
    Case::new(
        "LOCKING-READ",
        "SELECT CAST(row_number() OVER (ORDER BY id) AS text) FROM item WHERE id < 3",
        "it computes over a window; read the rows first and compute from them",
    )
    .committed()
    .instead(&["SELECT name FROM item WHERE id < 3"])
    .without_effect(),
    Case::new(
        "LOCKING-READ",
        "SELECT CAST(sum(n) AS text) FROM item FOR UPDATE",
        "it groups rows; read the rows first and compute from them",
    )
    .instead(&["SELECT n FROM item FOR UPDATE", "SELECT CAST(sum(n) AS text) FROM item"])
    .without_effect(),
    Case::new(
        "LOCKING-READ",
        "SELECT unnest(ARRAY[name]) FROM item WHERE id = 1",
        "calls a function that gives several rows; read the rows first and compute from them",
    )
    .committed()
    .too_late()
    .instead(&["SELECT name FROM item WHERE id = 1"])
    .same_answer(),
    Case::new(
        "LOCKING-READ",
        "SELECT item.name FROM item LEFT JOIN other ON other.item = item.id WHERE item.id = 1",
        "the database locks no rows of an outer join; read the rows of each table by itself",
    )
    .committed()
    .instead(&["SELECT name FROM other WHERE item = 1", "SELECT name FROM item WHERE id = 1"])
    .same_answer(),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
