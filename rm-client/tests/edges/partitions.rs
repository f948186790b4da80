//! PostgreSQL: partitioned tables, named by statements as a whole or by partition.

use std::time::Duration;

use sqlx::Postgres;

use super::with_upserts::{commit_when_waited_for, dump, like_plain};
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

/// Tables partitioned in several ways, and one whose partitions order their columns differently.
const UPSERTED: &[&str] = &[
    "CREATE TABLE seat (id INT, area INT, n INT, PRIMARY KEY (id, area), \
     CONSTRAINT seat_by UNIQUE (area, id)) PARTITION BY LIST (area)",
    "CREATE TABLE seat_one PARTITION OF seat FOR VALUES IN (1) PARTITION BY RANGE (id)",
    "CREATE TABLE seat_low PARTITION OF seat_one FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE seat_high PARTITION OF seat_one FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE seat_rest (note TEXT, n INT, area INT NOT NULL, id INT NOT NULL)",
    "ALTER TABLE seat_rest DROP COLUMN note",
    "ALTER TABLE seat ATTACH PARTITION seat_rest DEFAULT",
    "CREATE TABLE ticket (seat INT, area INT, PRIMARY KEY (seat, area), \
     FOREIGN KEY (seat, area) REFERENCES seat)",
    "CREATE TABLE plain (id INT PRIMARY KEY, n INT) PARTITION BY HASH (id)",
    "CREATE TABLE plain_all PARTITION OF plain FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    "INSERT INTO seat VALUES (1, 1, 10), (11, 1, 11), (1, 2, 12), (2, 2, NULL)",
    "INSERT INTO ticket VALUES (1, 1)",
    "INSERT INTO plain VALUES (1, 1), (2, 2)",
];
const DUMPED: &[(&str, &[&str])] =
    &[("seat", &["id", "area", "n", "tableoid::regclass"]), ("plain", &["id", "n"])];

/// The RETURNING of a partitioned table has no system column that tells an inserted row from an
/// updated one, so such upserts were refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_into_partitioned_tables_are_undone() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    for sql in [
        "INSERT INTO seat VALUES (1, 1, 0) ON CONFLICT (id, area) DO UPDATE SET n = excluded.n",
        "INSERT INTO seat VALUES (3, 1, 0) ON CONFLICT (id, area) DO UPDATE SET n = excluded.n",
        "INSERT INTO seat VALUES (1, 1, 0), (3, 1, 0), (11, 1, 0), (12, 1, 0), (1, 2, 0), \
         (2, 2, 0), (9, 9, 0) ON CONFLICT (area, id) DO UPDATE SET n = seat.n + 100 RETURNING n",
        // A row that is met and left alone.
        "INSERT INTO seat VALUES (1, 1, 0), (2, 2, 0), (5, 1, 0) \
         ON CONFLICT ON CONSTRAINT seat_by DO UPDATE SET n = -1 WHERE seat.n IS NULL",
        "INSERT INTO seat SELECT id, g, n FROM seat, generate_series(1, 3) g WHERE area = 1 \
         ON CONFLICT (id, area) DO UPDATE SET n = excluded.n, area = excluded.area",
        "INSERT INTO seat (id, area) VALUES (4, 4), (1, 2) ON CONFLICT (id, area) \
         DO UPDATE SET (id, area) = (excluded.id, excluded.area), n = 7 RETURNING *",
        // Rows that get another key within their partition.
        "INSERT INTO plain VALUES (1, 0), (3, 0) ON CONFLICT (id) DO UPDATE SET id = 50, n = 5",
        "INSERT INTO plain SELECT g, 0 FROM generate_series(1, 1500) g \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

/// A row that the branch itself has inserted before, or that rows refer to, is updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_behind_one_another_are_undone() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    let upsert = "INSERT INTO seat VALUES (1, 1, 0), (3, 1, 0), (9, 9, 0) \
                  ON CONFLICT (id, area) DO UPDATE SET n = seat.n + 1";
    let columns = ["id", "area", "n"];
    stage.check_undone("seat", &columns, &[upsert, upsert]).await;
    let fill = "INSERT INTO seat VALUES (3, 1, 5)";
    let refer = "INSERT INTO ticket VALUES (3, 1)";
    stage.check_undone("seat", &columns, &[fill, refer, upsert]).await;
}

/// A row that another transaction inserts while the upsert runs is met without having been read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_inserted_in_between_is_noticed_in_a_partition() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    for (held, offered, expected) in [
        ("INSERT INTO seat VALUES (5, 1, 50)", "(5, 1, 0)", Err("HF-AT-ROWS-DIFFER")),
        ("INSERT INTO seat VALUES (6, 1, 60)", "(7, 1, 0), (6, 1, 0)", Err("HF-AT-ROWS-DIFFER")),
        // The newest version of a row is the image.
        ("UPDATE seat SET n = 500 WHERE id = 1 AND area = 1", "(1, 1, 0)", Ok(())),
        // A row that is gone meanwhile is inserted.
        ("DELETE FROM seat WHERE id = 2", "(2, 2, 0)", Ok(())),
    ] {
        let mut other = stage.pool.begin().await.unwrap();
        sqlx::raw_sql(held).execute(&mut *other).await.unwrap();
        let global = stage.begin().await;
        let sql = format!(
            "INSERT INTO seat VALUES {offered} ON CONFLICT (id, area) DO UPDATE SET n = seat.n + 1"
        );
        let statements = [sql.as_str()];
        let overtake = commit_when_waited_for(&stage, other, "SELECT 1", DUMPED);
        let (ours, committed) = tokio::join!(stage.try_branch(&global, &statements), overtake);
        let code = ours.map_err(|error| code(&error));
        assert_eq!(code, expected.map_err(str::to_owned), "{held}");
        stage.roll_back(global).await;
        assert_eq!(dump(&stage, DUMPED).await, committed, "{held}");
    }
}

/// PostgreSQL itself refuses an upsert that would move a row to another partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_moves_no_row_to_another_partition() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    let before = dump(&stage, DUMPED).await;
    let global = stage.begin().await;
    let sql = "INSERT INTO seat VALUES (3, 3, 0), (1, 1, 0) ON CONFLICT (id, area) \
               DO UPDATE SET area = 5";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert!(refused.to_string().contains("invalid ON UPDATE specification"), "{refused}");
    stage.roll_back(global).await;
    assert_eq!(dump(&stage, DUMPED).await, before);
    // An UPDATE does.
    let stage = Stage::<Postgres>::new(PARTED).await;
    let sql = "UPDATE parted SET id = 150 WHERE id = 1";
    stage.check_undone("parted", &["id", "n", "tableoid::regclass"], &[sql]).await;
}

/// A row that is inserted under the key that another one had before the statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_an_upsert_frees_and_takes_is_refused_in_a_partition() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    let before = dump(&stage, DUMPED).await;
    let global = stage.begin().await;
    let sql = "INSERT INTO plain VALUES (1, 0), (1, 9) ON CONFLICT (id) DO UPDATE SET id = 50";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-ROWS-DIFFER");
    stage.roll_back(global).await;
    assert_eq!(dump(&stage, DUMPED).await, before);
}

/// Inside WITH no read can follow the upsert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_into_a_partitioned_table_stands_alone() {
    let stage = Stage::<Postgres>::new(UPSERTED).await;
    let global = stage.begin().await;
    let upsert =
        "INSERT INTO plain VALUES (1, 0), (3, 0) ON CONFLICT (id) DO UPDATE SET n = excluded.n";
    let sql = format!("WITH p AS ({upsert} RETURNING id) SELECT id FROM p");
    let refused = stage.try_branch(&global, &[&sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-WRITE-IN-WITH");
    assert!(refused.to_string().contains("execute it as a statement of its own"), "{refused}");
    stage.roll_back(global).await;
    stage.check_undone("plain", &["id", "n"], &[upsert]).await;
}

/// The check of its foreign key locks rows that the same statement has inserted, which then look
/// like updated ones. The ways that the refusal names are run here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_into_a_partitioned_table_that_refers_to_itself_is_refused() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE tree (id INT PRIMARY KEY, above INT REFERENCES tree) PARTITION BY RANGE (id)",
        "CREATE TABLE tree_low PARTITION OF tree FOR VALUES FROM (0) TO (100)",
        "INSERT INTO tree VALUES (1, NULL)",
    ])
    .await;
    let upsert = |table: &str| {
        format!(
            "INSERT INTO {table} VALUES (1, 2), (2, 2), (3, 1) \
             ON CONFLICT (id) DO UPDATE SET above = excluded.above"
        )
    };
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[&upsert("tree")]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-UPSERT");
    assert!(refused.to_string().contains("name the partition"), "{refused}");
    stage.roll_back(global).await;
    // The undo deleted the inserted row before it restored the one that refers to it, since a
    // partition was not known to refer to itself: an operator was asked.
    stage.check_undone("tree", &["id", "above"], &[&upsert("tree_low")]).await;
    let (insert, update) =
        ("INSERT INTO tree VALUES (2, 2), (3, 1)", "UPDATE tree SET above = 2 WHERE id = 1");
    stage.check_undone("tree", &["id", "above"], &[insert, update]).await;
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
        (
            "INSERT INTO parted VALUES (101, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
            "UPDATE parted_high SET n = 3 WHERE id = 101",
        ),
        // Met, and left alone.
        (
            "INSERT INTO parted VALUES (101, 2) ON CONFLICT (id) DO UPDATE SET n = 5 WHERE FALSE",
            "UPDATE parted_high SET n = 3 WHERE id = 101",
        ),
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
