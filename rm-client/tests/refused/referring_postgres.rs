//! The same for features of PostgreSQL: schemas, partitions, inheritance, policies.

use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;

use super::refusal;
use crate::at::{Stage, TestDatabase};

const PARTED: &[&str] = &[
    "CREATE SCHEMA \"Other\"",
    "CREATE TABLE par (id BIGINT PRIMARY KEY, n INT) PARTITION BY RANGE (id)",
    "CREATE TABLE par_low PARTITION OF par FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE par_high PARTITION OF par FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE \"Other\".chi (id BIGINT, \"Pid\" BIGINT REFERENCES par ON DELETE CASCADE, \
     PRIMARY KEY (id)) PARTITION BY HASH (id)",
    "CREATE TABLE \"Other\".chi_one PARTITION OF \"Other\".chi FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_of_another_schema_count() {
    for written in ["par", "par_low"] {
        let stage = Stage::<Postgres>::new(PARTED).await;
        let global = stage.begin().await;
        let parents = format!("INSERT INTO {written} VALUES (12, 1), (13, 1)");
        stage.branch(&global, &[&parents]).await;
        let child = "INSERT INTO \"Other\".chi VALUES (200, 12)";
        Postgres::raw(&stage.pool, child).await.unwrap();
        let (error, _) = refusal(&stage, global).await;
        assert!(error.contains("1 of 2 rows") && error.contains("Other.chi (200)"), "{error}");
        let found = stage.value("SELECT COUNT(*) FROM \"Other\".chi").await;
        assert_eq!(found.as_deref(), Some("1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_partition_that_refer_to_it_are_deleted() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE tree (id BIGINT PRIMARY KEY, above BIGINT REFERENCES tree ON DELETE CASCADE) \
         PARTITION BY RANGE (id)",
        "CREATE TABLE tree_low PARTITION OF tree FOR VALUES FROM (0) TO (100)",
    ])
    .await;
    for written in ["tree", "tree_low"] {
        let global = stage.begin().await;
        let rows = format!("INSERT INTO {written} VALUES (1, NULL), (2, 1), (3, 3)");
        stage.branch(&global, &[&rows]).await;
        stage.roll_back(global).await;
    }
    assert!(stage.dump("tree", &["id"]).await.is_empty());
}

/// Tables that inherit do not inherit the foreign key, so their rows refer to no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_inheriting_tables_do_not_count() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE par (id BIGINT PRIMARY KEY)",
        "CREATE TABLE chi (id BIGINT, pid BIGINT REFERENCES par ON DELETE CASCADE)",
        "CREATE TABLE heir () INHERITS (chi)",
        "INSERT INTO heir VALUES (1, 12)",
    ])
    .await;
    let global = stage.begin().await;
    stage.branch(&global, &["INSERT INTO par VALUES (12)"]).await;
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM heir").await.as_deref(), Some("1"));
}

/// A row without a primary key is identified by its referring columns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_without_a_key_counts() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE par (id BIGINT PRIMARY KEY)",
        "CREATE TABLE chi (pid BIGINT DEFAULT 1 REFERENCES par ON DELETE SET DEFAULT)",
    ])
    .await;
    let global = stage.begin().await;
    stage.branch(&global, &["INSERT INTO par VALUES (12)"]).await;
    Postgres::raw(&stage.pool, "INSERT INTO chi VALUES (12)").await.unwrap();
    let (error, rows) = refusal(&stage, global).await;
    assert!(error.contains("public.chi"), "{error}");
    assert_eq!(rows[0].columns[0].current.as_deref(), Some("12"));
}

/// Rows that the account must not read may exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_rows_are_not_taken_for_none() {
    for (change, reason) in [
        ("ALTER TABLE chi ENABLE ROW LEVEL SECURITY", "row-level security hides them"),
        ("REVOKE ALL ON chi FROM {role}", "cannot be told"),
    ] {
        let mut stage = Stage::<Postgres>::new(&[
            "CREATE TABLE par (id BIGINT PRIMARY KEY)",
            "CREATE TABLE chi (id BIGINT PRIMARY KEY, pid BIGINT REFERENCES par ON DELETE CASCADE)",
        ])
        .await;
        let role = format!("refers_{}", uuid::Uuid::new_v4().simple());
        for sql in [
            format!("CREATE ROLE {role} LOGIN"),
            format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
            change.replace("{role}", &role),
        ] {
            Postgres::raw(&stage.pool, &sql).await.unwrap();
        }
        let options = stage.pool.connect_options().as_ref().clone().username(&role);
        let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
        stage.resource = stage.handfast.at(pool).await.unwrap();
        let global = stage.begin().await;
        stage.branch(&global, &["INSERT INTO par VALUES (12)"]).await;
        Postgres::raw(&stage.pool, "INSERT INTO chi VALUES (200, 12)").await.unwrap();
        let (error, _) = refusal(&stage, global).await;
        assert!(error.contains(reason), "{error}");
        let found = stage.value("SELECT COUNT(*) FROM chi").await;
        assert_eq!(found.as_deref(), Some("1"));
    }
}
