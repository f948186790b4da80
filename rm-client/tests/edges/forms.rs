//! Forms of SQL that the planner's parser does not know.

use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_postgres_are_undone() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE person (id INT PRIMARY KEY, tags TEXT[], data JSONB, age INT, email TEXT)",
        "CREATE UNIQUE INDEX active ON person (email) WHERE age > 0",
        "INSERT INTO person VALUES (1, '{a,b}', '{\"a\": {\"b\": 1}}', 5, 'x'), \
         (2, '{c}', '{}', 0, 'x'), (3, NULL, NULL, 0, 'x')",
    ])
    .await;
    let columns = ["id", "tags", "data", "age", "email"];
    for sql in [
        "UPDATE person SET tags[2] = 'z', tags[5] = 'w' WHERE id < 3",
        "UPDATE person SET tags[1:2] = '{p,q}', data['a']['b'] = '7'",
        "UPDATE person SET data['n'] = '1' WHERE tags[1] = 'a'",
        "DELETE FROM person WHERE age BETWEEN SYMMETRIC 9 AND 1",
        "INSERT INTO person VALUES (7, NULL, NULL, 5, 'x') \
         ON CONFLICT (email) WHERE age > 0 DO UPDATE SET tags = '{met}', age = 6",
        "INSERT INTO person VALUES (7, NULL, NULL, 5, 'x'), (8, NULL, NULL, 5, 'y') \
         ON CONFLICT (email) WHERE age > 0 DO UPDATE SET age = person.age + excluded.age",
        "INSERT INTO person VALUES (7, NULL, NULL, 0, 'x') \
         ON CONFLICT (email) WHERE age > 0 DO UPDATE SET age = 9",
    ] {
        stage.check_undone("person", &columns, &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_mysql_are_undone() {
    let stage = Stage::<MySql>::new(&[
        "CREATE SEQUENCE numbers",
        "CREATE TABLE person (id BIGINT PRIMARY KEY, age INT)",
        "INSERT INTO person VALUES (1, 5), (2, 6), (3, 7)",
    ])
    .await;
    for sql in [
        "UPDATE person SET age = age MOD 3 WHERE id MOD 2 = 1",
        "UPDATE person SET age = age DIV 2 WHERE (id + 1) MOD 2 = MOD(6, 2)",
        "DELETE FROM person WHERE age MOD 2",
        "UPDATE person SET age = NEXT VALUE FOR numbers + 100",
        "INSERT INTO person VALUES (4, NEXT VALUE FOR numbers)",
    ] {
        stage.check_undone("person", &["id", "age"], &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literals_that_are_no_text_are_no_obstacle() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE item (id INT PRIMARY KEY, mark VARBINARY(4) NOT NULL DEFAULT (x'00ff'), \
         CHECK (mark <> x'fffe'), CHECK (id > 0))",
        "INSERT INTO item (id) VALUES (1)",
    ])
    .await;
    for sql in ["UPDATE item SET mark = 'a'", "INSERT INTO item (id) VALUES (2)"] {
        stage.check_undone("item", &["id", "HEX(mark)"], &[sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_sqlite_are_undone() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INT)",
        "CREATE INDEX by_age ON person (age)",
        "CREATE UNIQUE INDEX active ON person (name COLLATE NOCASE) WHERE age > 0",
        "INSERT INTO person VALUES (1, 'a', 5), (2, 'a', 0), (3, NULL, 7)",
    ])
    .await;
    let columns = ["id", "name", "age"];
    for sql in [
        "UPDATE person SET age = 8 WHERE name IS 'a' AND age IS NOT 0",
        "UPDATE person INDEXED BY by_age SET name = 'n' WHERE age = 5",
        "DELETE FROM person NOT INDEXED WHERE age IS 5 OR name IS NULL",
        "INSERT INTO person VALUES (7, 'A', 5) \
         ON CONFLICT (name COLLATE NOCASE) WHERE age > 0 DO NOTHING",
    ] {
        let changes = !sql.ends_with("NOTHING");
        if changes {
            stage.check_undone("person", &columns, &[sql]).await;
        } else {
            let global = stage.begin().await;
            stage.branch(&global, &[sql]).await;
            stage.roll_back(global).await;
        }
    }
    let global = stage.begin().await;
    let twice = "INSERT INTO person VALUES (1, 'b', 1) ON CONFLICT (id) DO NOTHING \
                 ON CONFLICT (name) WHERE age > 0 DO UPDATE SET age = 2";
    let refused = stage.try_branch(&global, &[twice]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-UPSERT");
    stage.roll_back(global).await;
}

/// SQLite tells of no row whether it was inserted, so that the read has to find the one that is met
/// by every index that the target can mean, as that index compares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partial_index_is_looked_up_as_it_compares() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INT)",
        "CREATE UNIQUE INDEX active ON person (name) WHERE age > 0",
        "CREATE UNIQUE INDEX old ON person (name) WHERE age > 90",
        "INSERT INTO person VALUES (1, 'a', 5), (2, 'a', 0)",
    ])
    .await;
    for sql in [
        "INSERT INTO person VALUES (7, 'a', 5) \
         ON CONFLICT (name) WHERE age > 0 DO UPDATE SET age = 6",
        "INSERT INTO person VALUES (7, 'a', 5), (8, 'b', 5), (9, 'a', -1) \
         ON CONFLICT (name) WHERE age > 0 DO UPDATE SET age = age + 1",
    ] {
        stage.check_undone("person", &["id", "name", "age"], &[sql]).await;
    }
}

/// PostgreSQL answered that a name is ambiguous, or specified twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_the_library_are_avoided() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE odd (id INT PRIMARY KEY, hf_old1 INT, n INT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, n INT)",
        "INSERT INTO odd VALUES (1, 1, 1)",
        "INSERT INTO plain VALUES (1, 1)",
    ])
    .await;
    let columns = ["id", "hf_old1", "n"];
    stage
        .check_undone("odd", &columns, &["UPDATE odd SET n = hf_old1 + 1 WHERE hf_old1 = 1"])
        .await;
    let sql = "WITH hf_before AS (SELECT 1 AS id) \
               UPDATE plain SET n = 2 WHERE id IN (SELECT id FROM hf_before)";
    stage.check_undone("plain", &["id", "n"], &[sql]).await;
    let sql = "UPDATE plain AS hf_before SET n = 2 WHERE hf_before.id = 1";
    stage.check_undone("plain", &["id", "n"], &[sql]).await;
}

/// The driver failed on the statement, without a code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multirange_is_not_imaged() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE plan (id INT PRIMARY KEY, n INT, at INT4MULTIRANGE, ats INT8MULTIRANGE[])",
        "INSERT INTO plan VALUES (1, 1, '{[1,3)}', NULL)",
    ])
    .await;
    for sql in [
        "INSERT INTO plan (id) VALUES (2)",
        "DELETE FROM plan",
        "UPDATE plan SET at = '{}'",
        "UPDATE plan SET ats = NULL",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-VALUE", "{sql}");
        stage.roll_back(global).await;
    }
    stage.check_undone("plan", &["id", "n", "at"], &["UPDATE plan SET n = 2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_transaction_has_settings_of_its_own() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE person (id INT PRIMARY KEY, editor TEXT)",
        "INSERT INTO person VALUES (1, 'before')",
    ])
    .await;
    let before = stage.dump("person", &["id", "editor"]).await;
    let global = stage.begin().await;
    global
        .scope(async {
            let mut local = stage.resource.begin().await.unwrap();
            for sql in [
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                "SET LOCAL app.editor = 'dot'",
                "UPDATE person SET editor = current_setting('app.editor') || ' ' || \
                 current_setting('transaction_isolation')",
            ] {
                Postgres::run(&mut local, sql).await.unwrap();
            }
            local.commit().await.unwrap();
        })
        .await;
    let row = vec![Some("1".to_owned()), Some("dot serializable".to_owned())];
    assert_eq!(stage.dump("person", &["id", "editor"]).await, [row]);
    stage.roll_back(global).await;
    assert_eq!(stage.dump("person", &["id", "editor"]).await, before);
}
