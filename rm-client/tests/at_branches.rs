//! One branch, committed and rolled back, for each kind of statement.

mod at;

use at::{Stage, TestDatabase, on_every_database};

const PERSON: &[&str] = &[
    "CREATE TABLE person (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(64), age INT)",
    "INSERT INTO person VALUES (100, 'Jack', 20), (101, 'Ann', 30), (102, 'Jack', 25)",
];
const COLUMNS: &[&str] = &["id", "name", "age"];

on_every_database!(
    a_commit_keeps_the_rows,
    an_update_is_undone,
    a_delete_is_undone,
    an_insert_is_undone,
    all_kinds_in_one_branch_are_undone
);

async fn a_commit_keeps_the_rows<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE person SET name = 'Mia', age = 1 WHERE id = 100"]).await;
    assert_eq!(stage.undo_rows().await, 1);
    stage.commit(global).await;
    assert_eq!(stage.undo_rows().await, 0);
    let name = stage.value("SELECT name FROM person WHERE id = 100").await;
    assert_eq!(name.as_deref(), Some("Mia"));
}

async fn an_update_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    for sql in [
        "UPDATE person SET name = 'Mia', age = 1 WHERE id = 100",
        "UPDATE person SET age = age + 1",
        "UPDATE person SET name = 'Mia' WHERE (id = 100 OR name = 'Jack') AND age BETWEEN 18 AND 28",
        "UPDATE person SET name = NULL WHERE id IN (100, 101)",
        "UPDATE person SET age = 7 WHERE NOT (age = 30)",
        "UPDATE person SET age = 7 WHERE name LIKE 'Ja%'",
    ] {
        stage.check_undone("person", COLUMNS, &[sql]).await;
    }
}

async fn a_delete_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    for sql in ["DELETE FROM person WHERE id = 100", "DELETE FROM person"] {
        stage.check_undone("person", COLUMNS, &[sql]).await;
    }
}

async fn an_insert_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    for sql in [
        "INSERT INTO person (id, name) VALUES (19, 'a'), (21, 'b')",
        "INSERT INTO person VALUES (19, 'a', 3)",
    ] {
        stage.check_undone("person", COLUMNS, &[sql]).await;
    }
}

async fn all_kinds_in_one_branch_are_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let statements = [
        "UPDATE person SET age = age + 1 WHERE id = 100",
        "UPDATE person SET age = age + 1 WHERE id = 100",
        "INSERT INTO person (id, name) VALUES (19, 'a')",
        "UPDATE person SET name = 'b' WHERE id = 19",
        "DELETE FROM person WHERE id = 19",
        "DELETE FROM person WHERE id = 101",
        "INSERT INTO person (id, name) VALUES (101, 'other')",
    ];
    stage.check_undone("person", COLUMNS, &statements).await;
}
