//! PostgreSQL: views whose rows are rows of one table. Statements run on the view, and are undone
//! in the table.

use std::time::Duration;

use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;

use super::with_upserts::{dump, like_plain};
use crate::at::{Stage, TestDatabase, code};

const VIEWS: &[&str] = &[
    "CREATE TABLE person (id INT PRIMARY KEY DEFAULT 70, name TEXT DEFAULT 'unnamed', age INT)",
    "CREATE TABLE pet (id INT PRIMARY KEY, owner INT REFERENCES person ON DELETE CASCADE)",
    "CREATE TABLE other (id INT PRIMARY KEY, n INT)",
    "CREATE VIEW adult AS SELECT * FROM person WHERE age >= 18 AND name <> 'none'",
    "ALTER VIEW adult ALTER name SET DEFAULT 'visitor'",
    "CREATE VIEW barred WITH (security_barrier) AS SELECT * FROM person p WHERE p.age > 18",
    "CREATE VIEW checked AS SELECT * FROM person WHERE age >= 18 WITH CHECK OPTION",
    "CREATE VIEW \"Named\" AS SELECT upper(name) AS loud, name, id FROM person",
    "INSERT INTO person VALUES (11, 'a', 20), (12, 'b', 10), (13, NULL, 30), (14, 'd', 40)",
    "INSERT INTO pet VALUES (1, 11), (2, 14), (3, 12)",
    "INSERT INTO other VALUES (11, 1), (12, 2)",
];
const DUMPED: &[(&str, &[&str])] = &[("person", &["id", "name", "age"]), ("pet", &["id", "owner"])];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_on_views_are_undone() {
    let stage = Stage::<Postgres>::new(VIEWS).await;
    for sql in [
        "UPDATE adult SET name = 'x'",
        "UPDATE adult AS a SET name = a.name || 'x' WHERE a.id < 14 RETURNING *",
        "UPDATE barred SET age = age + 1 WHERE id <> (SELECT min(id) FROM other)",
        "UPDATE checked SET age = 18 WHERE name = 'a'",
        "UPDATE \"Named\" SET name = 'x' WHERE loud = 'B' RETURNING loud, id",
        // Rows that leave the view.
        "UPDATE adult SET age = 9",
        "UPDATE adult SET age = 9 WHERE id IN (SELECT id FROM other) RETURNING *",
        "DELETE FROM adult WHERE id = 11",
        "DELETE FROM barred",
        // The view has a default of its own.
        "INSERT INTO adult (age) VALUES (50)",
        "INSERT INTO adult VALUES (20, 'x', 50), (11, 'y', 50) ON CONFLICT DO NOTHING RETURNING id",
        // A row that the view does not show.
        "INSERT INTO barred SELECT 90 + n, 'n', n FROM other",
    ] {
        like_plain(&stage, DUMPED, sql).await;
    }
}

/// Rows that get other keys, and rows that may break a constraint, are read before they change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_view_are_judged() {
    let stage = Stage::<Postgres>::new(VIEWS).await;
    for sql in ["DROP TABLE pet", "ALTER TABLE person ADD CHECK (age > 10) NOT VALID"] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    let dumped = &DUMPED[..1];
    for sql in ["UPDATE adult SET id = 90 WHERE id = 11", "UPDATE barred SET age = 99"] {
        like_plain(&stage, dumped, sql).await;
    }
    let global = stage.begin().await;
    let unseen = "UPDATE \"Named\" SET name = 'x' WHERE id = 12";
    let refused = stage.try_branch(&global, &[unseen]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-NOT-A-TABLE", "the column that is checked is not shown");
    stage.roll_back(global).await;
}

/// A row that is read or written through a view is locked as the table's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_view_are_locked_as_those_of_its_table() {
    let stage = Stage::<Postgres>::new(VIEWS).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    for held in [
        "SELECT name FROM adult WHERE id = 11 FOR UPDATE",
        "SELECT loud FROM \"Named\" n WHERE n.id < 12 FOR SHARE",
        "UPDATE adult SET name = 'x' WHERE id = 11",
    ] {
        let holder = stage.begin().await;
        stage.branch(&holder, &[held]).await;
        let other = stage.begin().await;
        for sql in ["UPDATE person SET age = 1 WHERE id = 11", "DELETE FROM barred WHERE id = 11"] {
            let refused = other.scope(Postgres::run_alone(&impatient, sql)).await.unwrap_err();
            assert_eq!(code(&refused), "HF-TC-ROW-LOCKED", "{held}; {sql}");
        }
        stage.roll_back(other).await;
        stage.roll_back(holder).await;
    }
}

const OTHERS: &[&str] = &[
    "CREATE TABLE parted (id INT PRIMARY KEY, n INT) PARTITION BY HASH (id)",
    "CREATE TABLE mother (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE daughter () INHERITS (mother)",
    "CREATE TABLE keyless (id INT, n INT)",
    "CREATE VIEW of_parted AS SELECT * FROM parted",
    "CREATE VIEW of_mother AS SELECT * FROM mother",
    "CREATE VIEW of_only AS SELECT * FROM ONLY mother",
    "CREATE VIEW of_keyless AS SELECT * FROM keyless",
    "CREATE VIEW of_view AS SELECT * FROM adult",
    "CREATE VIEW swapped AS SELECT n AS id, id AS n FROM other",
    "CREATE VIEW renamed AS SELECT id, age AS name, name AS age, name AS called FROM person",
    "CREATE VIEW keyed AS SELECT n FROM other",
    "CREATE VIEW clocked AS SELECT * FROM other WHERE n < extract(epoch FROM now())",
    "CREATE VIEW chosen AS SELECT * FROM other WHERE id IN (SELECT id FROM person)",
    "CREATE VIEW joined AS SELECT o.id, o.n FROM other o JOIN person p ON p.id = o.id",
    "CREATE VIEW ruled AS SELECT * FROM other",
    "CREATE RULE also AS ON UPDATE TO ruled DO ALSO INSERT INTO keyless VALUES (1, 1)",
    "CREATE VIEW triggered AS SELECT * FROM other",
    "CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN INSERT INTO keyless VALUES (1); RETURN NULL; END $$",
    "CREATE TRIGGER hears AFTER UPDATE ON triggered FOR EACH STATEMENT EXECUTE FUNCTION hear()",
    "CREATE MATERIALIZED VIEW made AS SELECT * FROM other",
];

/// Views that show other columns under the names of the table's, hide what is imaged, choose rows
/// by more than the row, or do something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_views_are_refused() {
    let stage = Stage::<Postgres>::new(VIEWS).await;
    for sql in OTHERS {
        Postgres::raw(&stage.pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let of = [
        "of_parted",
        "of_mother",
        "of_only",
        "of_keyless",
        "of_view",
        "swapped",
        "keyed",
        "clocked",
        "chosen",
        "joined",
        "triggered",
        "made",
    ];
    let mut refused: Vec<String> =
        of.iter().map(|view| format!("SELECT * FROM {view} FOR UPDATE")).collect();
    refused.extend(of.iter().map(|view| format!("DELETE FROM {view}")));
    refused.extend(
        [
            // Columns that are imaged are not shown, or under the names of others.
            "UPDATE renamed SET name = 5",
            "UPDATE renamed SET called = 'x'",
            "DELETE FROM renamed",
            "DELETE FROM \"Named\"",
            "INSERT INTO \"Named\" (name) VALUES ('x')",
            "UPDATE ruled SET n = 5",
            // The statement would need more of the view than its rows.
            "INSERT INTO adult VALUES (11, 'x', 5) ON CONFLICT (id) DO UPDATE SET age = 5",
            "UPDATE adult SET age = o.n FROM other o WHERE o.id = adult.id",
            "DELETE FROM adult USING other o WHERE o.id = adult.id",
            "SELECT * FROM adult a JOIN other o ON o.id = a.id FOR UPDATE",
        ]
        .map(str::to_owned),
    );
    for sql in &refused {
        let global = stage.begin().await;
        let error = stage.try_branch(&global, &[sql]).await.expect_err(sql);
        assert_eq!(code(&error), "HF-AT-NOT-A-TABLE", "{sql}");
        stage.roll_back(global).await;
    }
    let global = stage.begin().await;
    let sql = "WITH a AS (UPDATE adult SET age = 50) UPDATE other SET n = 7";
    let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-NOT-A-TABLE", "{sql}");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT count(*) FROM keyless").await.as_deref(), Some("0"));
}

/// A view acts with its owner's rights. The undo has those of the account, which must be able to
/// write to the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_of_a_table_that_the_account_may_not_write_is_refused() {
    let mut stage = Stage::<Postgres>::new(VIEWS).await;
    let role = format!("views_{}", uuid::Uuid::new_v4().simple());
    for sql in [
        format!("CREATE ROLE {role} LOGIN"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
        format!("REVOKE UPDATE ON person FROM {role}"),
    ] {
        Postgres::raw(&stage.pool, &sql).await.unwrap();
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&role);
    let pool = PgPoolOptions::new().connect_with(options.clone()).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    let before = dump(&stage, DUMPED).await;
    let sql = "UPDATE adult SET name = 'x' WHERE id = 11";
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-NOT-A-TABLE");
    stage.roll_back(global).await;
    assert_eq!(dump(&stage, DUMPED).await, before);

    let grant = format!("GRANT UPDATE ON person TO {role}");
    Postgres::raw(&stage.pool, &grant).await.unwrap();
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    like_plain(&stage, DUMPED, sql).await;
}
