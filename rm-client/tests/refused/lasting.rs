//! Errors that repeating does not cure. The rollback was tried again without end, with the rows
//! locked and no operator called.

use sqlx::{MySql, Postgres, Sqlite};

use super::refusal;
use crate::at::{Stage, TestDatabase};

/// Deletes a row in a branch, changes its table, and expects the database's own message.
async fn check<DB: TestDatabase>(setup: &[&str], changes: &[&str], message: &str) -> Stage<DB> {
    let stage = Stage::<DB>::new(setup).await;
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM item WHERE id = 100"]).await;
    for sql in changes {
        DB::raw(&stage.pool, sql).await.unwrap();
    }
    let (error, _) = refusal(&stage, global).await;
    assert!(error.contains("the database refuses, and would again"), "{error}");
    assert!(error.contains(message), "{error}");
    assert_eq!(stage.undo_rows().await, 1);
    assert!(stage.dump("item", &["id"]).await.is_empty(), "nothing is put back in part");
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_too_long_on_postgres() {
    let setup = [
        "CREATE TABLE item (id BIGINT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO item VALUES (100, 'too long now')",
    ];
    let change = "ALTER TABLE item ALTER name TYPE VARCHAR(5)";
    check::<Postgres>(&setup, &[change], "value too long for type character varying(5)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_without_a_partition_on_mysql() {
    let setup = [
        "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO item VALUES (100, 'far')",
    ];
    let change = "ALTER TABLE item PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (50))";
    check::<MySql>(&setup, &[change], "1526").await;
}

/// Without strict mode the letters would be restored as question marks, without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_the_column_cannot_hold_on_mysql() {
    let setup = [
        "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO item VALUES (100, '漢字')",
    ];
    let change = "ALTER TABLE item MODIFY name VARCHAR(20) CHARACTER SET latin1";
    check::<MySql>(&setup, &[change], "1366").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_in_a_strict_table_on_sqlite() {
    let setup = [
        "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT)",
        "INSERT INTO item VALUES (100, 'many')",
    ];
    let changes = ["DROP TABLE item", "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT) STRICT"];
    check::<Sqlite>(&setup, &changes, "cannot store TEXT value in INT column").await;
}

const NOT_STRICT: &str = "SET @mode = @@sql_mode; SET SESSION sql_mode = '';";
const STRICT_AGAIN: &str = "SET SESSION sql_mode = @mode";

/// The undo ran in strict mode, where writing the error value '' of an ENUM (index 0) fails with
/// error 1265, each time again. Other values that only a session without strict mode can write are
/// restored too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_value_of_an_enum_is_restored() {
    let table = "CREATE TABLE en (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         e ENUM('a', 'b') NOT NULL, s SET('x', 'y') NOT NULL, d DATE NOT NULL, \
         t TIMESTAMP NOT NULL, v INT)";
    let rows = format!(
        "{NOT_STRICT} INSERT INTO en VALUES (1, 'zz', 'zz', '2024-02-31', 0, 1), \
         (2, '', '', '2024-02-00', '2024-01-01', 2); {STRICT_AGAIN}"
    );
    let zero = format!("{NOT_STRICT} UPDATE en SET id = 0 WHERE id = 2; {STRICT_AGAIN}");
    let stage = Stage::<MySql>::new(&[table, &rows, &zero]).await;
    let columns = ["id", "e + 0", "HEX(e)", "s + 0", "HEX(d + 0)", "HEX(t + 0)", "v"];
    for statements in [
        ["UPDATE en SET e = 'a', v = 5 WHERE id = 1", "UPDATE en SET e = 'b' WHERE id = 0"],
        ["DELETE FROM en WHERE v = 1", "DELETE FROM en"],
        ["UPDATE en SET e = 'b'", "DELETE FROM en"],
    ] {
        stage.check_undone("en", &columns, &statements).await;
    }
    let mode = "SELECT COUNT(*) FROM en WHERE @@sql_mode LIKE '%STRICT%'";
    assert_eq!(stage.value(mode).await.as_deref(), Some("2"), "the session is strict again");
}

/// The error value as a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_value_of_an_enum_is_restored_as_a_key() {
    let table = "CREATE TABLE en (e ENUM('a', 'b') NOT NULL PRIMARY KEY, v INT)";
    let row = format!("{NOT_STRICT} INSERT INTO en VALUES ('zz', 1), ('a', 2); {STRICT_AGAIN}");
    let stage = Stage::<MySql>::new(&[table, &row]).await;
    for statement in ["UPDATE en SET v = 5", "DELETE FROM en"] {
        stage.check_undone("en", &["e + 0", "v"], &[statement]).await;
    }
}
