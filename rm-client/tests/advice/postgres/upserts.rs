//! Upserts whose rows cannot be known before they run.

use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE mail (id BIGINT PRIMARY KEY, address TEXT, n INT DEFAULT 4)",
        "CREATE UNIQUE INDEX mail_lower ON mail (lower(address))",
        "CREATE UNIQUE INDEX mail_plain ON mail (address text_pattern_ops)",
        "CREATE UNIQUE INDEX mail_high ON mail (n) WHERE n > 5",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO mail VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 9)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("mail", &["id", "address", "n"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new(
        "UPSERT",
        "INSERT INTO item SELECT item, n, 'q' FROM other ORDER BY id LIMIT 1 \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "select them first and insert them with VALUES",
    )
    .instead(&[
        "SELECT item, n FROM other ORDER BY id LIMIT 1",
        "INSERT INTO item VALUES (1, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = excluded.n",
    ]),
    Case::new(
        "UPSERT",
        "INSERT INTO mail VALUES (9, 'A', DEFAULT) \
         ON CONFLICT (lower(address)) DO UPDATE SET n = excluded.n",
        "write the value",
    )
    .instead(&["INSERT INTO mail VALUES (9, 'A', 4) \
                ON CONFLICT (lower(address)) DO UPDATE SET n = excluded.n"]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT INTO mail VALUES (9, 'a', 7) \
         ON CONFLICT (address text_pattern_ops) DO UPDATE SET n = 7",
        "write UPDATE, then INSERT if needed",
    )
    .instead(&[
        "UPDATE mail SET n = 7 WHERE address = 'a'",
        "INSERT INTO mail SELECT 9, 'a', 7 WHERE NOT EXISTS \
         (SELECT 1 FROM mail WHERE address = 'a')",
    ]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (n) DO UPDATE SET n = 7",
        "name one by its columns",
    )
    .instead(&["INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (id) DO UPDATE SET n = 7"])
    .same_as(&["INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (id) DO UPDATE SET n = 7"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
