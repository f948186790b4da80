//! PostgreSQL: partitioned tables, named by statements as a whole or by partition.

use std::time::Duration;

use sqlx::Postgres;

use crate::at::{Stage, TestDatabase, code};

const PARTED: &[&str] = &[
    "CREATE TABLE parted (id BIGINT PRIMARY KEY, n BIGINT) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (100) TO (200)",
    "INSERT INTO parted VALUES (1, 1), (101, 1)",
    "CREATE TABLE heard (n BIGINT)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_tables_are_undone_as_one() {
    let stage = Stage::<Postgres>::new(PARTED).await;
    for sql in [
        "UPDATE parted SET n = n + 1",
        "DELETE FROM parted",
        "INSERT INTO parted VALUES (2, 2), (102, 2)",
        "INSERT INTO parted VALUES (2, 2), (101, 2) ON CONFLICT DO NOTHING",
        "UPDATE parted_high SET n = 7",
    ] {
        stage.check_undone("parted", &["id", "n"], &[sql]).await;
    }
}

/// PostgreSQL cannot report which rows an upsert into a partitioned table inserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_into_a_partitioned_table_is_refused() {
    let stage = Stage::<Postgres>::new(PARTED).await;
    let global = stage.begin().await;
    let sql = "INSERT INTO parted VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-UPSERT");
    stage.roll_back(global).await;
}

/// A trigger on one partition fires for statements on the whole table, but is not listed as the
/// table's trigger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_of_a_partition_counts_for_the_table() {
    let stage = Stage::<Postgres>::new(PARTED).await;
    for sql in [
        "CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO heard VALUES (1); RETURN NEW; END $$",
        "CREATE TRIGGER hears AFTER UPDATE ON parted_low FOR EACH ROW EXECUTE FUNCTION hear()",
    ] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    let global = stage.begin().await;
    let written = stage.try_branch(&global, &["UPDATE parted SET n = n + 1"]).await;
    assert_eq!(code(&written.unwrap_err()), "HF-AT-TRIGGER");
    stage.roll_back(global).await;
}

/// A foreign key that refers to one partition and cascades takes effect for statements on the whole
/// table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cascade_from_a_partition_counts_for_the_table() {
    let stage = Stage::<Postgres>::new(PARTED).await;
    let child = "CREATE TABLE child (id BIGINT PRIMARY KEY, \
                 parent BIGINT REFERENCES parted_low ON DELETE CASCADE)";
    Postgres::raw(&stage.pool, child).await.unwrap();
    Postgres::raw(&stage.pool, "INSERT INTO child VALUES (1, 1)").await.unwrap();
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM parted WHERE id = 1"]).await;
    assert!(stage.dump("child", &["id"]).await.is_empty());
    stage.roll_back(global).await;
    assert_eq!(stage.dump("child", &["id", "parent"]).await.len(), 1);
}

/// The row was locked under the name of the table or partition that the statement named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_partition_is_locked_as_a_row_of_the_table() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE parted (id BIGINT PRIMARY KEY, n BIGINT) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (100) TO (200)",
        "INSERT INTO parted VALUES (101, 1)",
    ])
    .await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    for (first, second) in [
        ("UPDATE parted SET n = 2 WHERE id = 101", "UPDATE parted_high SET n = 3 WHERE id = 101"),
        ("UPDATE parted_high SET n = 2 WHERE id = 101", "UPDATE parted SET n = 3 WHERE id = 101"),
    ] {
        let holder = stage.begin().await;
        stage.branch(&holder, &[first]).await;
        let other = stage.begin().await;
        let refused = other.scope(Postgres::run_alone(&impatient, second)).await.unwrap_err();
        assert_eq!(code(&refused), "HF-TC-ROW-LOCKED", "{second}");
        stage.roll_back(other).await;
        stage.roll_back(holder).await;
        assert_eq!(stage.value("SELECT n FROM parted").await.as_deref(), Some("1"));
    }
}
