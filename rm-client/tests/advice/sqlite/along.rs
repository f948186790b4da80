//! Foreign keys that delete or change rows along.

use sqlx::Sqlite;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE par (id INTEGER PRIMARY KEY)",
        "CREATE TABLE loose (rowid INT NOT NULL, oid INT, _rowid_ INT, \
         par INT REFERENCES par ON DELETE CASCADE)",
        "CREATE TABLE heeded (id INTEGER PRIMARY KEY, par INT REFERENCES par ON DELETE CASCADE)",
        "CREATE TABLE heard (n INT)",
        "CREATE TRIGGER heeds AFTER DELETE ON heeded BEGIN INSERT INTO heard VALUES (1); END",
        "CREATE TABLE seat (par INT DEFAULT 0 REFERENCES par ON DELETE SET DEFAULT, no INT, \
         PRIMARY KEY (par, no))",
        "CREATE TABLE many (id INTEGER PRIMARY KEY, par INT REFERENCES par ON DELETE CASCADE)",
        "CREATE INDEX many_par ON many (par)",
        "CREATE TABLE tree (id INTEGER PRIMARY KEY, \
         above INT REFERENCES tree ON DELETE CASCADE, n INT)",
        "CREATE TABLE leaf (id INTEGER PRIMARY KEY, \
         above INT REFERENCES leaf ON DELETE SET NULL, n INT)",
        "INSERT INTO par VALUES (0), (1), (2), (3), (4)",
        "INSERT INTO loose VALUES (1, 1, 1, 1)",
        "INSERT INTO heeded VALUES (1, 2)",
        "INSERT INTO seat VALUES (3, 1)",
        "INSERT INTO many WITH RECURSIVE n (i) AS \
         (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5001) SELECT i, 4 FROM n",
        "INSERT INTO tree VALUES (1, NULL, 0), (2, 1, 0)",
        "INSERT INTO leaf VALUES (1, NULL, 0)",
    ],
    tables: &[
        ("par", &["id"]),
        ("loose", &["rowid", "oid", "_rowid_", "par"]),
        ("heeded", &["id", "par"]),
        ("heard", &["n"]),
        ("seat", &["par", "no"]),
        ("many", &["id", "par"]),
        ("tree", &["id", "above", "n"]),
        ("leaf", &["id", "above", "n"]),
    ],
};

pub(super) const CASES: &[Case<Sqlite>] = &[
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 1",
        "which cannot be undone there: table main.loose has no primary key",
    )
    .outside(&["CREATE UNIQUE INDEX loose_key ON loose (rowid)"])
    .again(),
    Case::new("CASCADE", "DELETE FROM par WHERE id = 2", "trigger heeds may write unseen")
        .outside(&["DROP TRIGGER heeds"])
        .again()
        .same_as(&["DROP TRIGGER heeds", "DELETE FROM par WHERE id = 2"]),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 3",
        "delete the rows that refer first, and insert them under their other key",
    )
    .instead(&[
        "DELETE FROM seat WHERE par = 3",
        "INSERT INTO seat VALUES (0, 1)",
        "DELETE FROM par WHERE id = 3",
    ]),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 4",
        "these are more than 5,000, or more than 32 keys away: delete the rows that refer first",
    )
    .instead(&["DELETE FROM many WHERE par = 4", "DELETE FROM par WHERE id = 4"]),
    Case::new(
        "CASCADE",
        "REPLACE INTO tree VALUES (1, NULL, 5)",
        "change the row by an UPDATE, or delete it and insert it again",
    )
    .instead(&["DELETE FROM tree WHERE id = 1", "INSERT INTO tree VALUES (1, NULL, 5)"]),
    Case::new("CASCADE", "REPLACE INTO leaf VALUES (1, NULL, 5)", "use ON CONFLICT DO UPDATE")
        .instead(&["INSERT INTO leaf VALUES (1, NULL, 5) \
                    ON CONFLICT (id) DO UPDATE SET above = excluded.above, n = excluded.n"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
