//! Changes over several tables.

use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
    ],
    tables: &[("item", &["id", "n", "name"]), ("other", &["id", "item", "n"])],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item SET n = other.n FROM other WHERE item.id = other.item AND random() < 2",
        "choose the rows in a sub-select of FROM (on PostgreSQL)",
    )
    .instead(&["UPDATE item SET n = q.n FROM \
                (SELECT item, n FROM other WHERE random() < 2) AS q WHERE item.id = q.item"]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item SET n = other.n FROM other WHERE item.id = other.item \
         AND other.id IN (SELECT id FROM other ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)",
        "or by a SELECT before",
    )
    .instead(&[
        "SELECT id FROM other ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        "UPDATE item SET n = other.n FROM other WHERE item.id = other.item AND other.id IN (1)",
    ]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item SET n = a.n FROM other a JOIN other b USING (id) WHERE item.id = a.item \
         RETURNING *",
        "name the tables, as in RETURNING a.*, b.*",
    )
    .instead(&["UPDATE item SET n = a.n FROM other a JOIN other b USING (id) \
                WHERE item.id = a.item RETURNING item.*, a.*, b.*"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
