//! A row that refers to a row of another global, which is undecided. The rollback of that global
//! found it in the way of the row that it had to remove, and asked for an operator.

use std::time::Duration;

use handfast::AtResource;
use sqlx::Postgres;

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_row_waits_for_the_parent_of_another_global,
    keys_of_every_kind_are_locked,
    an_assigned_reference_is_locked,
    an_upserted_reference_is_locked,
    a_reference_is_locked_whatever_statement_makes_it,
    a_parent_of_many_is_shared,
    a_parent_may_be_left_unlocked,
    a_parent_of_the_same_global_is_free,
    a_null_refers_to_nothing,
);

async fn impatient<DB: TestDatabase>(stage: &Stage<DB>) -> AtResource<DB> {
    let resource = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    resource.await.unwrap()
}

const FAMILY: &[&str] = &[
    "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, n INT)",
    "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, m INT, \
     FOREIGN KEY (pid) REFERENCES par (id))",
    "INSERT INTO par VALUES (1, 1), (2, 2)",
    "INSERT INTO chi VALUES (1, 1, 1)",
];

/// Runs a statement that refers to a row which another global has just written: it is refused, and
/// accepted once that global has committed.
async fn check<DB: TestDatabase>(stage: &Stage<DB>, parent: &str, sql: &str) {
    let resource = impatient(stage).await;
    let (holder, other) = (stage.begin().await, stage.begin().await);
    stage.branch(&holder, &[parent]).await;
    let error = other.scope(DB::run_alone(&resource, sql)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED", "{sql}: {error}");
    stage.commit(holder).await;
    other.scope(DB::run_alone(&resource, sql)).await.unwrap();
    stage.roll_back(other).await;
}

async fn a_row_waits_for_the_parent_of_another_global<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    check(&stage, "INSERT INTO par VALUES (12, 1)", "INSERT INTO chi VALUES (9, 12, 1)").await;
    check(&stage, "UPDATE par SET n = 5 WHERE id = 2", "INSERT INTO chi VALUES (9, 2, 1)").await;
    // A row of the same global is nothing to wait for, nor is one that is not written.
    let (one, two) = (stage.begin().await, stage.begin().await);
    stage.branch(&one, &["INSERT INTO par VALUES (13, 1)"]).await;
    stage.branch(&two, &["INSERT INTO chi VALUES (10, 2, 1)"]).await;
    stage.branch(&one, &["INSERT INTO chi VALUES (11, 13, 1)"]).await;
    stage.roll_back(one).await;
    stage.roll_back(two).await;
}

async fn keys_of_every_kind_are_locked<DB: TestDatabase>() {
    // A text under a collation without case, two columns in another order, a unique key, a number
    // with a fraction.
    let text = match DB::NAME_IN_TESTS {
        "sqlite" => "VARCHAR(20) COLLATE NOCASE",
        _ => "VARCHAR(20)",
    };
    let stage = Stage::<DB>::new(&[
        &format!("CREATE TABLE word (w {text} NOT NULL PRIMARY KEY, n INT)"),
        &format!(
            "CREATE TABLE of_word (id INT NOT NULL PRIMARY KEY, w {text}, \
         FOREIGN KEY (w) REFERENCES word (w))"
        ),
        "CREATE TABLE pair (a INT NOT NULL, b BIGINT NOT NULL, n INT, PRIMARY KEY (a, b))",
        "CREATE TABLE of_pair (id INT NOT NULL PRIMARY KEY, y BIGINT, x INT, \
         FOREIGN KEY (x, y) REFERENCES pair (a, b))",
        "CREATE TABLE coded (id INT NOT NULL PRIMARY KEY, code INT NOT NULL UNIQUE, n INT)",
        "CREATE TABLE of_coded (id INT NOT NULL PRIMARY KEY, code INT, \
         FOREIGN KEY (code) REFERENCES coded (code))",
        "CREATE TABLE exact (k DECIMAL(10, 2) NOT NULL PRIMARY KEY, n INT)",
        "CREATE TABLE of_exact (id INT NOT NULL PRIMARY KEY, k DECIMAL(10, 2), \
         FOREIGN KEY (k) REFERENCES exact (k))",
        "INSERT INTO word VALUES ('Ab', 1), ('other', 1)",
        "INSERT INTO pair VALUES (1, 21, 1), (12, 1, 1)",
        "INSERT INTO coded VALUES (1, 10, 1), (2, 20, 1)",
        "INSERT INTO exact VALUES (1.50, 1)",
    ])
    .await;
    check(&stage, "UPDATE word SET n = 2 WHERE w = 'Ab'", "INSERT INTO of_word VALUES (1, 'Ab')")
        .await;
    check(&stage, "UPDATE pair SET n = 2 WHERE a = 1", "INSERT INTO of_pair VALUES (1, 21, 1)")
        .await;
    check(&stage, "UPDATE coded SET n = 2 WHERE id = 2", "INSERT INTO of_coded VALUES (1, 20)")
        .await;
    check(&stage, "UPDATE exact SET n = 2", "INSERT INTO of_exact VALUES (1, 1.5)").await;
    if DB::NAME_IN_TESTS != "postgres" {
        let sql = "INSERT INTO of_word VALUES (1, 'AB')";
        check(&stage, "UPDATE word SET n = 3 WHERE w = 'Ab'", sql).await;
    }
    // Rows beside them are free.
    let (one, two) = (stage.begin().await, stage.begin().await);
    stage.branch(&one, &["UPDATE pair SET n = 3 WHERE a = 12"]).await;
    stage.branch(&one, &["UPDATE coded SET n = 3 WHERE id = 1"]).await;
    stage.branch(&two, &["INSERT INTO of_pair VALUES (2, 21, 1)"]).await;
    stage.branch(&two, &["INSERT INTO of_coded VALUES (2, 20)"]).await;
    stage.roll_back(one).await;
    stage.roll_back(two).await;
}

async fn an_assigned_reference_is_locked<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let parent = "UPDATE par SET n = 5 WHERE id = 2";
    check(&stage, parent, "UPDATE chi SET pid = 2 WHERE id = 1").await;
    check(&stage, parent, "UPDATE chi SET m = 2, pid = 1 + (SELECT 1) WHERE id = 1").await;
    // Other columns, and a reference that stays as it is, take no lock.
    let (holder, other) = (stage.begin().await, stage.begin().await);
    stage.branch(&holder, &["UPDATE par SET n = 5 WHERE id = 1"]).await;
    stage.branch(&other, &["UPDATE chi SET m = 2", "UPDATE chi SET pid = 1 WHERE id = 1"]).await;
    stage.roll_back(holder).await;
    stage.roll_back(other).await;
}

async fn an_upserted_reference_is_locked<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let clause = match DB::NAME_IN_TESTS {
        "mysql" => "ON DUPLICATE KEY UPDATE pid = 2",
        _ => "ON CONFLICT (id) DO UPDATE SET pid = 2",
    };
    let parent = "UPDATE par SET n = 5 WHERE id = 2";
    check(&stage, parent, &format!("INSERT INTO chi VALUES (1, 1, 1) {clause}")).await;
    check(&stage, parent, &format!("INSERT INTO chi VALUES (9, 2, 1) {clause}")).await;
}

async fn a_reference_is_locked_whatever_statement_makes_it<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let statements: &[&str] = match DB::NAME_IN_TESTS {
        "postgres" => &[
            "UPDATE chi SET pid = 2 FROM par WHERE par.id = 1 AND chi.id = 1",
            "WITH w AS (INSERT INTO chi VALUES (9, 2, 1) RETURNING id) SELECT id FROM w",
            "WITH w AS (UPDATE chi SET pid = 2 WHERE id = 1 RETURNING id) SELECT id FROM w",
        ],
        "mysql" => &[
            "UPDATE chi JOIN par ON par.id = 1 SET chi.pid = 2 WHERE chi.id = 1",
            "UPDATE chi, par SET chi.pid = 2, par.n = 7 WHERE chi.id = 1 AND par.id = 1",
        ],
        _ => &["UPDATE chi SET pid = 2 FROM par WHERE par.id = 1 AND chi.id = 1"],
    };
    let to_another_key = "UPDATE chi SET id = 5, pid = 2 WHERE id = 1";
    for sql in statements.iter().chain([&to_another_key]) {
        check(&stage, "UPDATE par SET n = n + 1 WHERE id = 2", sql).await;
    }
}

async fn a_parent_of_many_is_shared<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let resource = impatient(&stage).await;
    let (one, two, three) = (stage.begin().await, stage.begin().await, stage.begin().await);
    stage.branch(&one, &["INSERT INTO chi VALUES (8, 1, 1)"]).await;
    stage.branch(&two, &["INSERT INTO chi VALUES (9, 1, 1)"]).await;
    let update = "UPDATE par SET n = 5 WHERE id = 1";
    let error = three.scope(DB::run_alone(&resource, update)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED", "{error}");
    stage.commit(one).await;
    stage.roll_back(two).await;
    three.scope(DB::run_alone(&resource, update)).await.unwrap();
    stage.roll_back(three).await;
}

async fn a_parent_may_be_left_unlocked<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let resource = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let resource = resource.unlocked_parent("par").await.unwrap();
    let (one, two) = (stage.begin().await, stage.begin().await);
    one.scope(DB::run_alone(&resource, "INSERT INTO chi VALUES (8, 1, 1)")).await.unwrap();
    two.scope(DB::run_alone(&resource, "UPDATE par SET n = 5 WHERE id = 1")).await.unwrap();
    stage.roll_back(one).await;
    stage.roll_back(two).await;
}

async fn a_parent_of_the_same_global_is_free<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let before = stage.dump("chi", &["id", "pid"]).await;
    let global = stage.begin().await;
    let both = ["INSERT INTO par VALUES (12, 1)", "INSERT INTO chi VALUES (9, 12, 1)"];
    stage.branch(&global, &both).await;
    stage.branch(&global, &["INSERT INTO chi VALUES (10, 12, 1)", "UPDATE par SET n = 9"]).await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("chi", &["id", "pid"]).await, before);
}

async fn a_null_refers_to_nothing<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let (one, two) = (stage.begin().await, stage.begin().await);
    stage.branch(&one, &["UPDATE par SET n = 5"]).await;
    stage.branch(&two, &["INSERT INTO chi VALUES (9, NULL, 1)", "UPDATE chi SET pid = NULL"]).await;
    stage.roll_back(one).await;
    stage.roll_back(two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_postgres_are_locked() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE par (id UUID PRIMARY KEY, n INT)",
        "CREATE TABLE chi (id INT PRIMARY KEY, pid UUID REFERENCES par)",
        "INSERT INTO par VALUES ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 1)",
        "CREATE TABLE parted (id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE of_parted (id INT PRIMARY KEY, pid INT REFERENCES parted)",
        "CREATE TABLE of_low (id INT PRIMARY KEY, pid SMALLINT REFERENCES parted_low)",
        "INSERT INTO parted VALUES (1, 1)",
    ])
    .await;
    let insert = "INSERT INTO chi VALUES (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')";
    check(&stage, "UPDATE par SET n = 2", insert).await;
    for table in ["of_parted", "of_low"] {
        let insert = format!("INSERT INTO {table} VALUES (1, 1)");
        check(&stage, "UPDATE parted_low SET n = n + 1", &insert).await;
    }
}
