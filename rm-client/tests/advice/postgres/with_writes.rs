//! Writes inside WITH.

use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE checked (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE tree (id BIGINT PRIMARY KEY, above BIGINT REFERENCES tree)",
        "CREATE TABLE job (id BIGINT PRIMARY KEY, state TEXT)",
        "CREATE TABLE failure (id BIGINT PRIMARY KEY, \
         job BIGINT REFERENCES job ON DELETE CASCADE)",
        "ALTER TABLE checked ADD CONSTRAINT positive CHECK (n > 0) NOT VALID",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO checked VALUES (1, 5), (2, 6)",
        "INSERT INTO tree VALUES (1, NULL)",
        "INSERT INTO job VALUES (1, 'done'), (2, 'new')",
        "INSERT INTO failure VALUES (1, 1)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("checked", &["id", "n"]),
        ("tree", &["id", "above"]),
        ("job", &["id", "state"]),
        ("failure", &["id", "job"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new(
        "WRITE-IN-WITH",
        "WITH u AS (UPDATE checked SET n = 1 RETURNING id) SELECT id FROM u",
        "one of its writes needs a read before it; execute it as a statement of its own",
    )
    .instead(&["UPDATE checked SET n = 1 RETURNING id"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH u AS (UPDATE item SET n = 1 WHERE id = 1 RETURNING id, n AS id) SELECT 1",
        "it returns two columns of one name; name one of them otherwise",
    )
    .instead(&["WITH u AS (UPDATE item SET n = 1 WHERE id = 1 RETURNING id, n AS given) SELECT 1"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH u AS (UPDATE item SET n = 1 WHERE id = 1 RETURNING n + 1) SELECT 1",
        "a value that it returns has no name; write one behind AS",
    )
    .instead(&["WITH u AS (UPDATE item SET n = 1 WHERE id = 1 RETURNING n + 1 AS more) SELECT 1"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other RETURNING *, n + 1 AS more) SELECT id FROM gone",
        "it returns * beside other columns; name the columns",
    )
    .instead(&["WITH gone AS (DELETE FROM other RETURNING id, item, n, n + 1 AS more) \
                SELECT id FROM gone"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other USING item WHERE item.id = other.item RETURNING *) \
         SELECT name FROM gone",
        "it returns * of several tables; name the columns",
    )
    .instead(&["WITH gone AS (DELETE FROM other USING item WHERE item.id = other.item \
                RETURNING item.name) SELECT name FROM gone"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH item AS (DELETE FROM other RETURNING id) UPDATE item SET n = 0 WHERE id = 1",
        "a query of WITH has the name of a table that is written; give it another name",
    )
    .instead(&["WITH gone AS (DELETE FROM other RETURNING id) UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH a AS (WITH b AS (DELETE FROM other RETURNING id) SELECT id FROM b) SELECT id FROM a",
        "one is deeper inside; write it directly in the first WITH",
    )
    .instead(&["WITH b AS (DELETE FROM other RETURNING id), a AS (SELECT id FROM b) \
                SELECT id FROM a"])
    .same_as(&["DELETE FROM other"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM item WHERE id = 1) \
         INSERT INTO item VALUES (8, 5, 'q') ON CONFLICT DO NOTHING",
        "the order in which they run is not known; execute each as a statement of its own",
    )
    .instead(&[
        "DELETE FROM item WHERE id = 1",
        "INSERT INTO item VALUES (8, 5, 'q') ON CONFLICT DO NOTHING",
    ]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH u AS (UPDATE item SET n = 1 WHERE id IN (SELECT id FROM item ORDER BY id LIMIT 1)) \
         UPDATE item SET n = 2 WHERE id = 2",
        "one chooses its rows in a way that cannot be asked again; execute each as a statement",
    )
    .instead(&[
        "UPDATE item SET n = 1 WHERE id IN (SELECT id FROM item ORDER BY id LIMIT 1)",
        "UPDATE item SET n = 2 WHERE id = 2",
    ]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH q AS NOT MATERIALIZED (SELECT id FROM item ORDER BY id LIMIT 1), \
         u AS (UPDATE item SET n = 1 WHERE id IN (SELECT id FROM q)) \
         UPDATE item SET n = 2 WHERE id = 2",
        "leave out NOT MATERIALIZED",
    )
    .instead(&["WITH q AS (SELECT id FROM item ORDER BY id LIMIT 1), \
                u AS (UPDATE item SET n = 1 WHERE id IN (SELECT id FROM q)) \
                UPDATE item SET n = 2 WHERE id = 2"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH RECURSIVE u AS (UPDATE item SET n = 1 WHERE id = 1) \
         UPDATE item SET n = 2 WHERE id = 2",
        "WITH RECURSIVE stands before writes whose order matters; execute each as a statement",
    )
    .instead(&["UPDATE item SET n = 1 WHERE id = 1", "UPDATE item SET n = 2 WHERE id = 2"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH i AS (INSERT INTO tree VALUES (2, 3)) INSERT INTO tree VALUES (3, 1)",
        "its writes could be undone in no order, as their tables refer to each other; execute each \
         as a statement of its own",
    )
    .instead(&["INSERT INTO tree VALUES (3, 1)", "INSERT INTO tree VALUES (2, 3)"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other WHERE id = 1 RETURNING item) \
         SELECT n FROM item WHERE id IN (SELECT item FROM gone) FOR UPDATE",
        "the statement behind it locks rows; lock them by a read before it",
    )
    .instead(&[
        "SELECT n FROM item WHERE id IN (SELECT item FROM other WHERE id = 1) FOR UPDATE",
        "WITH gone AS (DELETE FROM other WHERE id = 1 RETURNING item) \
         SELECT n FROM item WHERE id IN (SELECT item FROM gone)",
    ]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM job WHERE id = 2 RETURNING id) \
         INSERT INTO failure SELECT id + 10, 1 FROM gone",
        "it writes that table, too; execute each as a statement of its own",
    )
    .instead(&["DELETE FROM job WHERE id = 2 RETURNING id", "INSERT INTO failure VALUES (12, 1)"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM job WHERE id = 1 RETURNING id) SELECT id FROM gone",
        "with those that it deletes; delete them by a statement of its own",
    )
    .instead(&["DELETE FROM job WHERE id = 1 RETURNING id"]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH u AS (UPDATE item SET n = 1 WHERE id = 1) UPDATE item SET n = 2 WHERE id < 3",
        "two of its writes have chosen the same row",
    )
    .too_late()
    .instead(&["UPDATE item SET n = 1 WHERE id = 1", "UPDATE item SET n = 2 WHERE id < 3"]),
    Case::new(
        "UNCHECKED-READ",
        "WITH gone AS (DELETE FROM other RETURNING id) SELECT id FROM gone",
        "by a statement of its own",
    )
    .committed()
    .instead(&["DELETE FROM other RETURNING id"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
