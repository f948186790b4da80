//! Upserts, and INSERT of the rows of a query.

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
        "CREATE TABLE mail (id BIGINT PRIMARY KEY, address VARCHAR(20) UNIQUE, n INT)",
        "CREATE TABLE prefixed (id BIGINT PRIMARY KEY, name VARCHAR(20), n INT, \
         UNIQUE (name(3)))",
        "CREATE TABLE moment (id BIGINT PRIMARY KEY, at TIMESTAMP NULL)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO mail VALUES (1, 'a', 1), (2, 'b', 2)",
        "INSERT INTO prefixed VALUES (1, 'aaaa', 1)",
        "INSERT INTO moment VALUES (1, '2026-01-01 00:00:00')",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("mail", &["id", "address", "n"]),
        ("prefixed", &["id", "name", "n"]),
        ("moment", &["id", "at"]),
    ],
};

/// The rows of `other`, as VALUES.
const AS_VALUES: &str =
    "INSERT INTO item VALUES (1, 5, 'q'), (2, 6, 'q') ON DUPLICATE KEY UPDATE n = VALUES(n)";

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new(
        "UPSERT",
        "INSERT INTO mail VALUES (1, 'x', 5), (3, 'y', 6) \
         ON DUPLICATE KEY UPDATE address = VALUES(address)",
        "insert them one by one",
    )
    .instead(&[
        "INSERT INTO mail VALUES (1, 'x', 5) ON DUPLICATE KEY UPDATE address = VALUES(address)",
        "INSERT INTO mail VALUES (3, 'y', 6) ON DUPLICATE KEY UPDATE address = VALUES(address)",
    ]),
    Case::new(
        "UPSERT",
        "INSERT IGNORE INTO item VALUES (1, 5, 'q') ON DUPLICATE KEY UPDATE n = 5",
        "say it once",
    )
    .instead(&["INSERT INTO item VALUES (1, 5, 'q') ON DUPLICATE KEY UPDATE n = 5"]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT INTO prefixed VALUES (2, 'aaab', 5) ON DUPLICATE KEY UPDATE n = 5",
        "write UPDATE, then INSERT if needed",
    )
    .instead(&["UPDATE prefixed SET n = 5 WHERE id = 2 OR name LIKE 'aaa%'"]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item SELECT id + 10, n, 'q' FROM other \
         UNION ALL SELECT id + 20, n, 'q' FROM other",
        "select the rows first and insert them with VALUES",
    )
    .instead(&[
        "SELECT id + 10, n, 'q' FROM other UNION ALL SELECT id + 20, n, 'q' FROM other",
        "INSERT INTO item VALUES (11, 5, 'q'), (12, 6, 'q'), (21, 5, 'q'), (22, 6, 'q')",
    ]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item SELECT item, n, 'q' FROM other ON DUPLICATE KEY UPDATE n = item.n + ?",
        "the clause about conflicts has arguments; select the rows first",
    )
    .bound(&[3])
    .instead_bound(&[
        ("SELECT item, n, 'q' FROM other", &[]),
        (
            "INSERT INTO item VALUES (1, 5, 'q'), (2, 6, 'q') \
             ON DUPLICATE KEY UPDATE n = item.n + ?",
            &[3],
        ),
    ]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item SELECT item, n, 'q' FROM other AS o ON DUPLICATE KEY UPDATE n = o.n",
        "its ON DUPLICATE KEY UPDATE reads columns of the query; select the rows first",
    )
    .instead(&["SELECT item, n, 'q' FROM other", AS_VALUES]),
    Case::new(
        "INSERT-SELECT",
        "REPLACE INTO item SELECT item, n, 'q' FROM other RETURNING id",
        "it has RETURNING; select the rows first and insert them with VALUES",
    )
    .instead(&[
        "SELECT item, n, 'q' FROM other",
        "REPLACE INTO item VALUES (1, 5, 'q'), (2, 6, 'q') RETURNING id",
    ]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item (id, name) SELECT id + 10, n FROM other",
        "CAST it to that",
    )
    .instead(&["INSERT INTO item (id, name) SELECT id + 10, CAST(n AS CHAR) FROM other"]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO moment SELECT id + 10, at FROM moment",
        "use an offset, such as '+00:00'",
    )
    .refused_on(in_local_time)
    .on(at_offset)
    .again(),
];

/// A resource whose connections leave the time zone to the server.
fn in_local_time(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    with_time_zone(stage, None).boxed_local()
}

fn at_offset(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    with_time_zone(stage, Some("+00:00".to_owned())).boxed_local()
}

async fn with_time_zone(stage: &Stage<MySql>, zone: Option<String>) -> AtResource<MySql> {
    let options = stage.pool.connect_options().as_ref().clone().timezone(zone);
    let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
    stage.handfast.at(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
