//! PostgreSQL: tables that inherit from others. A parent and its children may have rows under one
//! key.

use std::time::Duration;

use sqlx::Postgres;

use super::with_upserts::{dump, like_plain};
use crate::at::{Stage, TestDatabase, code};

const FAMILY: &[&str] = &[
    "CREATE TABLE mother (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE daughter (PRIMARY KEY (id), m INT DEFAULT 7) INHERITS (mother)",
    "CREATE TABLE grandchild (PRIMARY KEY (id)) INHERITS (daughter)",
    "CREATE TABLE other (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE visit (id INT PRIMARY KEY, mother INT REFERENCES mother)",
    "INSERT INTO mother VALUES (1, 10), (2, 20), (3, 30)",
    "INSERT INTO daughter VALUES (1, 100), (2, 200), (4, 400)",
    "INSERT INTO grandchild VALUES (1, 1000), (2, NULL), (5, 5000)",
    "INSERT INTO other VALUES (1, 1), (2, 2), (9, 9)",
    "INSERT INTO visit VALUES (1, 1)",
];
const DUMPED: &[(&str, &[&str])] = &[
    ("ONLY mother", &["id", "n"]),
    ("ONLY daughter", &["id", "n", "m"]),
    ("grandchild", &["id", "n", "m"]),
    ("visit", &["id", "mother"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_parent_alone_are_undone() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    for sql in [
        // The undo deletes no row of a child.
        "INSERT INTO mother VALUES (4, 0), (5, 0)",
        "INSERT INTO mother VALUES (1, 0), (4, 0) ON CONFLICT DO NOTHING",
        "INSERT INTO mother VALUES (1, 0), (4, 0) ON CONFLICT (id) DO UPDATE SET n = 7",
        "INSERT INTO mother SELECT id, n FROM ONLY daughter \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "INSERT INTO daughter VALUES (3, 0, 0), (5, 0, 0)",
        "INSERT INTO daughter VALUES (1, 0, 0), (5, 0, 0) \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "INSERT INTO grandchild VALUES (3, 0, 0)",
        "INSERT INTO visit VALUES (2, 2)",
        "UPDATE ONLY mother SET n = n + 1",
        "UPDATE ONLY mother AS m SET n = 0 WHERE m.id = 1 RETURNING *",
        "UPDATE ONLY daughter SET id = 3 WHERE id = 4",
        "UPDATE only daughter SET n = 0, m = 0 WHERE id IN (SELECT id FROM mother)",
        "UPDATE grandchild SET n = 0",
        "UPDATE ONLY grandchild SET n = 0 WHERE id = 1",
        "DELETE FROM ONLY mother WHERE id > 1",
        "DELETE FROM ONLY daughter",
        "DELETE FROM grandchild WHERE id = 1",
        "UPDATE ONLY mother SET n = o.n FROM other o WHERE o.id = mother.id",
        "UPDATE ONLY daughter d SET n = o.n FROM other o, mother m WHERE o.id = d.id AND m.id = 1",
        "DELETE FROM ONLY daughter AS d USING other o WHERE o.id = d.id",
        "DELETE FROM ONLY mother USING other o WHERE o.id = mother.id AND o.id = 2 RETURNING *",
        "WITH d AS (DELETE FROM ONLY daughter RETURNING id), \
         m AS (UPDATE ONLY mother SET n = 0 RETURNING id) SELECT d.id FROM d, m",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

/// An UPDATE that is judged, and that leaves its join out since that may choose others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_is_left_out_leaves_only() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    for table in ["mother", "daughter"] {
        let check = format!("ALTER TABLE {table} ADD CHECK (n < 5000) NOT VALID");
        Postgres::raw(&stage.pool, &check).await.unwrap();
    }
    for sql in [
        "UPDATE ONLY daughter d SET n = 5 \
         FROM (SELECT id FROM other WHERE id < 9 ORDER BY random() LIMIT 2) o WHERE o.id = d.id",
        "UPDATE ONLY mother SET n = 5 WHERE id < 3",
        "DELETE FROM ONLY daughter WHERE id = 1",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

/// Without ONLY a statement means rows of several tables, under keys that may be the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_children_are_not_written_through_their_parent() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    let before = dump(&stage, DUMPED).await;
    for sql in [
        "UPDATE mother SET n = 0",
        "UPDATE daughter SET n = 0 WHERE id = 1",
        "DELETE FROM mother WHERE id = 1",
        "SELECT n FROM mother WHERE id = 1 FOR UPDATE",
        "UPDATE mother SET n = o.n FROM other o WHERE o.id = mother.id",
        "DELETE FROM daughter d USING other o WHERE o.id = d.id",
        "WITH d AS (DELETE FROM ONLY daughter) UPDATE mother SET n = 0",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.expect_err(sql);
        assert_eq!(code(&refused), "HF-AT-NOT-A-TABLE", "{sql}");
        assert!(refused.to_string().contains("write ONLY before its name"), "{refused}");
        stage.roll_back(global).await;
    }
    let global = stage.begin().await;
    let sql = "SELECT m.n FROM mother m JOIN other o ON o.id = m.id FOR UPDATE OF m";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-LOCKING-READ");
    stage.roll_back(global).await;
    assert_eq!(dump(&stage, DUMPED).await, before);
}

/// The refusal advises to write ONLY, and to each child by its own name: together that is what the
/// statement says without ONLY.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_table_of_a_family_is_written_by_its_own_name() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    let before = dump(&stage, DUMPED).await;
    for (plain, advised) in [
        (
            "UPDATE mother SET n = n + 1 WHERE id = 2",
            [
                "UPDATE ONLY mother SET n = n + 1 WHERE id = 2",
                "UPDATE ONLY daughter SET n = n + 1 WHERE id = 2",
                "UPDATE grandchild SET n = n + 1 WHERE id = 2",
            ],
        ),
        (
            "DELETE FROM mother WHERE id > 1",
            [
                "DELETE FROM ONLY mother WHERE id > 1",
                "DELETE FROM ONLY daughter WHERE id > 1",
                "DELETE FROM grandchild WHERE id > 1",
            ],
        ),
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[plain]).await.expect_err(plain);
        assert_eq!(code(&refused), "HF-AT-NOT-A-TABLE");
        stage.branch(&global, &advised).await;
        let ours = dump(&stage, DUMPED).await;
        stage.roll_back(global).await;
        assert_eq!(dump(&stage, DUMPED).await, before, "{plain} is undone");

        Postgres::raw(&stage.pool, plain).await.unwrap();
        assert_eq!(ours, dump(&stage, DUMPED).await, "{plain}");
        for sql in [
            "DELETE FROM mother",
            "INSERT INTO mother VALUES (1, 10), (2, 20), (3, 30)",
            "INSERT INTO daughter VALUES (1, 100), (2, 200), (4, 400)",
            "INSERT INTO grandchild VALUES (1, 1000), (2, NULL), (5, 5000)",
        ] {
            let sql = sql.replace("DELETE", "DELETE FROM visit; DELETE");
            Postgres::raw(&stage.pool, &sql).await.unwrap();
        }
        Postgres::raw(&stage.pool, "INSERT INTO visit VALUES (1, 1)").await.unwrap();
    }
}

/// One key names a row of the parent and another one of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_parent_and_child_are_locked_apart() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    for held in [
        "UPDATE ONLY mother SET n = 0 WHERE id = 2",
        "SELECT n FROM ONLY mother WHERE id = 2 FOR UPDATE",
    ] {
        let holder = stage.begin().await;
        stage.branch(&holder, &[held]).await;
        let other = stage.begin().await;
        let own = "UPDATE ONLY daughter SET n = 0 WHERE id = 2";
        other.scope(Postgres::run_alone(&impatient, own)).await.unwrap();
        let refused = "UPDATE ONLY mother SET n = 1 WHERE id = 2";
        let refused = other.scope(Postgres::run_alone(&impatient, refused)).await.unwrap_err();
        assert_eq!(code(&refused), "HF-TC-ROW-LOCKED", "{held}");
        stage.roll_back(other).await;
        stage.roll_back(holder).await;
    }
}

/// A foreign key binds the rows of its own table, and not those of tables that inherit from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_parent_go_along_alone() {
    for action in ["CASCADE", "SET NULL"] {
        let pet = format!(
            "CREATE TABLE pet (id INT PRIMARY KEY, owner INT REFERENCES owner ON DELETE {action})"
        );
        let stage = Stage::<Postgres>::new(&[
            "CREATE TABLE owner (id INT PRIMARY KEY)",
            &pet,
            "CREATE TABLE cat (PRIMARY KEY (id)) INHERITS (pet)",
            "INSERT INTO owner VALUES (1), (2)",
            "INSERT INTO pet VALUES (1, 1), (2, 2)",
            "INSERT INTO cat VALUES (1, 1), (2, 1)",
        ])
        .await;
        let dumped: &[(&str, &[&str])] =
            &[("owner", &["id"]), ("ONLY pet", &["id", "owner"]), ("cat", &["id", "owner"])];
        for sql in ["DELETE FROM owner WHERE id = 1", "DELETE FROM owner"] {
            like_plain(&stage, dumped, sql).await;
        }
    }
}
