//! Upserts, and other clauses about conflicts.

use sqlx::Sqlite;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id INTEGER PRIMARY KEY, item INT, n INT)",
        "CREATE TABLE unique_name (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INT)",
        "CREATE TABLE mail (id INTEGER PRIMARY KEY, address TEXT, n INT)",
        "CREATE UNIQUE INDEX mail_lower ON mail (lower(address))",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO unique_name VALUES (1, 'a', 1), (2, 'b', 2)",
        "INSERT INTO mail VALUES (1, 'a', 1), (2, 'b', 2)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("unique_name", &["id", "name", "n"]),
        ("mail", &["id", "address", "n"]),
    ],
};

const READ: &str = "SELECT item, n, 'q' FROM other";
/// The rows of the query, as VALUES.
const AS_VALUES: &str = "INSERT INTO item VALUES (1, 5, 'q'), (2, 6, 'q') \
                         ON CONFLICT (id) DO UPDATE SET n = excluded.n";

pub(super) const CASES: &[Case<Sqlite>] = &[
    Case::new(
        "UPSERT",
        "INSERT OR IGNORE INTO item VALUES (1, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = 5",
        "say it once",
    )
    .instead(&["INSERT INTO item VALUES (1, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = 5"]),
    Case::new(
        "UPSERT",
        "INSERT INTO unique_name VALUES (1, 'q', 5) ON CONFLICT (name) DO NOTHING \
         ON CONFLICT (id) DO UPDATE SET n = 5",
        "write the one that counts",
    )
    .instead(&["INSERT INTO unique_name VALUES (1, 'q', 5) ON CONFLICT (id) DO UPDATE SET n = 5"]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT OR REPLACE INTO mail VALUES (9, 'A', 7)",
        "write UPDATE, then INSERT if needed",
    )
    .instead(&["UPDATE mail SET id = 9, address = 'A', n = 7 WHERE lower(address) = 'a'"]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT INTO mail VALUES (9, 'C', 7) ON CONFLICT (lower(address)) DO UPDATE SET n = 7",
        "write UPDATE, then INSERT if needed",
    )
    .instead(&[
        "UPDATE mail SET n = 7 WHERE lower(address) = 'c'",
        "INSERT INTO mail VALUES (9, 'C', 7)",
    ]),
    Case::new(
        "UPSERT-INDEX",
        "INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (n) DO UPDATE SET n = 7",
        "name one by its columns",
    )
    .instead(&["INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (id) DO UPDATE SET n = 7"])
    .same_as(&["INSERT INTO mail VALUES (1, 'd', 3) ON CONFLICT (id) DO UPDATE SET n = 7"]),
    Case::new(
        "CONFLICT-CLAUSE",
        "INSERT OR FAIL INTO item VALUES (9, 5, 'q')",
        "use OR ABORT, OR IGNORE or ON CONFLICT",
    )
    .instead(&["INSERT OR ABORT INTO item VALUES (9, 5, 'q')"]),
    Case::new(
        "CONFLICT-CLAUSE",
        "INSERT OR ROLLBACK INTO item VALUES (9, 5, 'q')",
        "use OR ABORT, OR IGNORE or ON CONFLICT",
    )
    .instead(&["INSERT INTO item VALUES (9, 5, 'q') ON CONFLICT DO NOTHING"]),
    Case::new(
        "CONFLICT-CLAUSE",
        "UPDATE OR REPLACE unique_name SET name = 'b' WHERE id = 1",
        "delete the rows that are in the way before",
    )
    .instead(&[
        "DELETE FROM unique_name WHERE name = 'b' AND id <> 1",
        "UPDATE unique_name SET name = 'b' WHERE id = 1",
    ]),
    Case::new(
        "CONFLICT-CLAUSE",
        "UPDATE OR IGNORE unique_name SET name = 'b', n = 5",
        "or leave out by WHERE those that would conflict",
    )
    .instead(&["UPDATE unique_name SET name = 'b', n = 5 WHERE name = 'b'"]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item SELECT item, n, 'q' FROM other WHERE id = 1 \
         UNION ALL SELECT item, n, 'q' FROM other WHERE id = 2 \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "its rows come from UNION, TABLE or brackets; select the rows first",
    )
    .instead(&[READ, AS_VALUES]),
    Case::new(
        "INSERT-SELECT",
        "WITH q AS (SELECT item, n FROM other) INSERT INTO item SELECT item, n, 'q' FROM q \
         WHERE true ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "its WITH stands before INSERT; write it before SELECT",
    )
    .instead(&["INSERT INTO item WITH q AS (SELECT item, n FROM other) \
                SELECT item, n, 'q' FROM q WHERE true \
                ON CONFLICT (id) DO UPDATE SET n = excluded.n"]),
    Case::new(
        "INSERT-SELECT",
        "INSERT INTO item SELECT item, n, 'q' FROM other WHERE true \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n + ?",
        "the clause about conflicts has arguments; select the rows first",
    )
    .bound(&[3])
    .instead_bound(&[
        (READ, &[]),
        (
            "INSERT INTO item VALUES (1, 5, 'q'), (2, 6, 'q') \
             ON CONFLICT (id) DO UPDATE SET n = excluded.n + ?",
            &[3],
        ),
    ]),
    Case::new(
        "INSERT-SELECT",
        "REPLACE INTO item SELECT item, n, 'q' FROM other RETURNING id",
        "it has RETURNING; select the rows first and insert them with VALUES",
    )
    .instead(&[READ, "REPLACE INTO item VALUES (1, 5, 'q'), (2, 6, 'q') RETURNING id"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
