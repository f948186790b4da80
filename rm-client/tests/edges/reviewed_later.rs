//! What readers of the code have found later, each reduced to its cause.

use std::time::Duration;

use futures::FutureExt;
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_refused_read_does_not_fail_what_comes_after_it,
    a_begin_that_nobody_waits_for_leaves_nothing_open,
);

/// The rows of a refused read were checked again with each later statement, which had then run, and
/// was told to have failed.
async fn a_refused_read_does_not_fail_what_comes_after_it<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1), (2, 1)",
    ])
    .await;
    let writer = stage.begin().await;
    stage.branch(&writer, &["UPDATE stock SET n = 2 WHERE id = 1"]).await;
    let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
    let work = async {
        let mut local = stage.resource.begin().await?;
        let refused = DB::read(&mut local, "SELECT n FROM stock WHERE id = 1").await.unwrap_err();
        assert_eq!(code(&refused), "HF-TC-ROW-LOCKED");
        DB::run(&mut local, "UPDATE stock SET n = n + 1 WHERE id = 2").await?;
        local.commit().await
    };
    reader.scope(work).await.unwrap();
    stage.commit(reader).await;
    stage.roll_back(writer).await;
    let left = stage.dump("stock", &["n"]).await;
    assert_eq!(left, [[Some("1".to_owned())], [Some("2".to_owned())]]);
}

/// Its connection went back to the pool inside a transaction, in which others worked from then on.
async fn a_begin_that_nobody_waits_for_leaves_nothing_open<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&["CREATE TABLE stock (id INTEGER PRIMARY KEY)"]).await;
    let options = (*stage.pool.connect_options()).clone();
    let one = PoolOptions::<DB>::new().max_connections(1).test_before_acquire(false);
    let pool = one.connect_with(options).await.unwrap();
    let resource = stage.handfast.at(pool.clone()).await.unwrap();
    let global = stage.begin().await;
    for id in 1..=20 {
        // Its BEGIN is under way then, and mostly not answered yet.
        if id % 2 == 0 {
            drop(resource.begin().now_or_never());
        } else {
            drop(global.scope(resource.begin()).now_or_never());
        }
        DB::raw(&pool, &format!("INSERT INTO stock VALUES ({id})")).await.unwrap();
        let kept = stage.value(&format!("SELECT id FROM stock WHERE id = {id}")).await;
        assert_eq!(kept, Some(id.to_string()), "others see it at once");
    }
    stage.roll_back(global).await;
}

/// A value is stored without its fraction, so that no probe found the row that it meets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_replace_would_remove_unseen_stays() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE slot (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DATETIME UNIQUE, n INT)",
        "INSERT INTO slot VALUES (3, '2026-01-01 10:00:00', 1)",
    ])
    .await;
    let before = stage.dump("slot", &["id", "n"]).await;
    for sql in [
        "REPLACE INTO slot (at, n) VALUES ('2026-01-01 10:00:00.3', 5)",
        "REPLACE INTO slot VALUES (9, '2026-01-01 10:00:00.3', 5)",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROWS-DIFFER", "{sql}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("slot", &["id", "n"]).await, before, "{sql}");
    }
}

/// Its rows were locked under the name of whichever the statement named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_partition_is_one_row_of_the_whole() {
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

const MANY: &[&str] = &[
    "CREATE TABLE many (id INTEGER PRIMARY KEY, n INTEGER, born TEXT DEFAULT '2026-01-01')",
    "INSERT INTO many (n) WITH RECURSIVE one (n) AS \
     (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < 2500) SELECT n FROM one",
];

/// It goes by key, a thousand rows at a time, and the second thousand would see what has become of
/// the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_in_an_assignment_is_asked_before_any_row_has_changed() {
    let stage = Stage::<Sqlite>::new(MANY).await;
    let sql = "UPDATE many SET n = n - (SELECT min(n) FROM many) WHERE born < date('now')";
    stage.check_undone("many", &["id", "n"], &[sql]).await;
    let global = stage.begin().await;
    stage.branch(&global, &[sql]).await;
    stage.commit(global).await;
    let wrong = "SELECT count(*) FROM many WHERE n <> id - 1";
    assert_eq!(stage.value(wrong).await.as_deref(), Some("0"));

    sqlx::query("INSERT INTO many (n) SELECT one.n FROM many one, many WHERE many.id < 15")
        .execute(&stage.pool)
        .await
        .unwrap();
    let before = stage.value("SELECT sum(n) FROM many").await;
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-TOO-MANY-ROWS");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT sum(n) FROM many").await, before);
}

/// The local transaction was gone with all that it had done, and what came after it was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_follows_a_statement_that_has_rolled_back_all() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO stock VALUES (1, 1), (2, 1)",
        "CREATE TRIGGER positive BEFORE UPDATE ON stock WHEN NEW.n < 0 \
         BEGIN SELECT RAISE(ROLLBACK, 'negative'); END",
    ])
    .await;
    let trusting = stage.handfast.at(stage.pool.clone()).trust_trigger("positive").await.unwrap();
    let before = stage.dump("stock", &["id", "n"]).await;
    let global = stage.begin().await;
    let work = async {
        let mut local = trusting.begin().await?;
        Sqlite::run(&mut local, "UPDATE stock SET n = 5 WHERE id = 1").await?;
        let failed = Sqlite::run(&mut local, "UPDATE stock SET n = -1 WHERE id = 2").await;
        let failed = failed.unwrap_err();
        assert!(failed.to_string().contains("negative"), "{failed}");
        let after = Sqlite::run(&mut local, "UPDATE stock SET n = 7 WHERE id = 2").await;
        assert_eq!(code(&after.unwrap_err()), "HF-AT-ENDED");
        local.commit().await
    };
    assert_eq!(code(&global.scope(work).await.unwrap_err()), "HF-AT-ENDED");
    stage.roll_back(global).await;
    assert_eq!(stage.dump("stock", &["id", "n"]).await, before);
    assert_eq!(stage.undo_rows().await, 0);
}
