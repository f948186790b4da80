//! Refusals that each stand by themselves: relations that are no ordinary table, upserts of
//! partitioned tables, and MERGE.

use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 9, 6)",
        "CREATE VIEW shown AS SELECT id, n FROM item WHERE n < (SELECT 99)",
        "CREATE TABLE mother (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE daughter (PRIMARY KEY (id)) INHERITS (mother)",
        "INSERT INTO daughter VALUES (1, 1), (2, 2)",
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE FOREIGN TABLE elsewhere (id BIGINT, n INT) SERVER far",
        "CREATE TABLE part (id BIGINT PRIMARY KEY, n BIGINT REFERENCES part (id)) \
         PARTITION BY RANGE (id)",
        "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (100)",
        "INSERT INTO part VALUES (1, NULL), (5, NULL)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("mother", &["id", "n"]),
        ("part", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new("NOT-A-TABLE", "UPDATE shown SET n = 0 WHERE id = 1", "is a view")
        .instead(&["UPDATE item SET n = 0 WHERE id = 1"]),
    Case::new("NOT-A-TABLE", "UPDATE mother SET n = 0 WHERE id = 1", "inheritance children")
        .instead(&["UPDATE daughter SET n = 0 WHERE id = 1"]),
    Case::new("NOT-A-TABLE", "DELETE FROM elsewhere", "write to an ordinary table")
        .instead(&["DELETE FROM item"])
        .same_as(&["DELETE FROM item"]),
    Case::new(
        "UPSERT",
        "INSERT INTO part VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = 5",
        "refers to itself; name the partition, or write UPDATE and INSERT",
    )
    .instead(&["INSERT INTO part_low VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = 5"]),
    Case::new(
        "MERGE",
        "MERGE INTO item USING other ON item.id = other.item \
         WHEN MATCHED THEN UPDATE SET n = other.n \
         WHEN NOT MATCHED THEN INSERT VALUES (other.item, other.n, 'q')",
        "write it as UPDATE, DELETE and INSERT",
    )
    .instead(&[
        "UPDATE item SET n = other.n FROM other WHERE item.id = other.item",
        "INSERT INTO item SELECT item, n, 'q' FROM other WHERE NOT EXISTS \
         (SELECT 1 FROM item WHERE id = other.item)",
    ]),
    Case::new(
        "WRITE-IN-WITH",
        "WITH gone AS (DELETE FROM other WHERE id = 1 RETURNING item) \
         MERGE INTO item USING gone ON item.id = gone.item WHEN MATCHED THEN DELETE",
        "MERGE has no images; write it as UPDATE, DELETE and INSERT",
    )
    .instead(&["WITH gone AS (DELETE FROM other WHERE id = 1 RETURNING item) \
                DELETE FROM item USING gone WHERE item.id = gone.item"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
