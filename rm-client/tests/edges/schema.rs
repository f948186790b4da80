//! Tables whose definition changes between a change of rows and its undo.

use std::time::Duration;

use handfast::GlobalStatus;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySql, Postgres};

use crate::at::{Stage, TestDatabase, code, on_every_database};

const NOTE: &[&str] = &[
    "CREATE TABLE note (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(20))",
    "INSERT INTO note VALUES (1, 'one'), (2, 'two')",
];

on_every_database!(
    a_column_missing_in_the_image_is_not_lost,
    a_changed_type_stops_the_undo,
    a_redefined_key_stops_the_undo,
    a_column_added_before_the_undo_does_no_harm,
);

/// The cached description of the table was a minute old, so the image of the deleted row had no
/// `extra`. The undo restored the row without it and reported success.
async fn a_column_missing_in_the_image_is_not_lost<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(NOTE).await;
    let warm = stage.begin().await;
    stage.branch(&warm, &["UPDATE note SET body = 'known' WHERE id = 2"]).await;
    stage.roll_back(warm).await;
    DB::raw(&stage.pool, "ALTER TABLE note ADD COLUMN extra BIGINT").await.unwrap();
    DB::raw(&stage.pool, "UPDATE note SET extra = 5 WHERE id = 1").await.unwrap();
    let before = stage.dump("note", &["id", "body", "extra"]).await;

    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM note WHERE id = 1"]).await;
    if global.rollback("test").await.is_ok() {
        assert_eq!(stage.dump("note", &["id", "body", "extra"]).await, before);
    }
}

async fn a_changed_type_stops_the_undo<DB: TestDatabase>() {
    if DB::NAME_IN_TESTS == "sqlite" {
        return; // Its columns have no type that a value would have to fit.
    }
    let stage = Stage::<DB>::new(NOTE).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE note SET body = '7' WHERE id = 1"]).await;
    let alter = match DB::NAME_IN_TESTS {
        "postgres" => "ALTER TABLE note ALTER body TYPE text",
        _ => "ALTER TABLE note MODIFY body VARCHAR(40)",
    };
    DB::raw(&stage.pool, alter).await.unwrap();
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap_err();
    let stopped = |status| matches!(status, GlobalStatus::NeedsOperator(_));
    stage.await_status(&xid, stopped).await;
    let body = stage.value("SELECT body FROM note WHERE id = 1").await;
    assert_eq!(body.as_deref(), Some("7"), "nothing is touched");
}

/// The undo panicked and was repeated without end, and no operator was called.
async fn a_redefined_key_stops_the_undo<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(NOTE).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE note SET body = 'other' WHERE id = 1"]).await;
    let redefine: &[&str] = match DB::NAME_IN_TESTS {
        "postgres" => &[
            "ALTER TABLE note ADD n INT NOT NULL DEFAULT 5",
            "ALTER TABLE note DROP CONSTRAINT note_pkey, ADD PRIMARY KEY (id, n)",
        ],
        "mysql" => &[
            "ALTER TABLE note ADD n INT NOT NULL DEFAULT 5",
            "ALTER TABLE note DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
        ],
        _ => &[
            "ALTER TABLE note RENAME TO gone",
            "CREATE TABLE note (id BIGINT NOT NULL, body VARCHAR(20), n INT, PRIMARY KEY (id, n))",
            "INSERT INTO note SELECT id, body, 5 FROM gone",
        ],
    };
    for sql in redefine {
        DB::raw(&stage.pool, sql).await.unwrap();
    }
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap_err();
    let stopped = |status| matches!(status, GlobalStatus::NeedsOperator(_));
    stage.await_status(&xid, stopped).await;
    let body = stage.value("SELECT body FROM note WHERE id = 1").await;
    assert_eq!(body.as_deref(), Some("other"), "nothing is touched");
}

async fn a_column_added_before_the_undo_does_no_harm<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(NOTE).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE note SET body = 'other'"]).await;
    DB::raw(&stage.pool, "ALTER TABLE note ADD COLUMN extra BIGINT DEFAULT 5").await.unwrap();
    stage.roll_back(global).await;
    let body = stage.value("SELECT body FROM note WHERE id = 1").await;
    assert_eq!(body.as_deref(), Some("one"));
}

/// The statement was refused for a minute after the table had got the key that the refusal asked
/// for.
async fn advice_that_was_followed_counts<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&["CREATE TABLE loose (id BIGINT NOT NULL, n INT)"]).await;
    DB::raw(&stage.pool, "INSERT INTO loose VALUES (1, 1)").await.unwrap();
    let update = "UPDATE loose SET n = 2 WHERE id = 1";
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[update]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-NO-PRIMARY-KEY");
    DB::raw(&stage.pool, "ALTER TABLE loose ADD PRIMARY KEY (id)").await.unwrap();
    // A description that is younger than that refuses without another look.
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.try_branch(&global, &[update]).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT n FROM loose").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_that_was_followed_counts_on_postgres() {
    advice_that_was_followed_counts::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_that_was_followed_counts_on_mysql() {
    advice_that_was_followed_counts::<MySql>().await;
}

/// The driver caches statements by their text, which was the same after the change: the server
/// answered "cached plan must not change result type" for as long as the connection lived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_type_does_not_spoil_connections() {
    let mut stage = Stage::<Postgres>::new(NOTE).await;
    Postgres::raw(&stage.pool, TOUCH).await.unwrap();
    Postgres::raw(&stage.pool, TOUCHES).await.unwrap();
    let options = stage.pool.connect_options().as_ref().clone();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).trust_trigger("touches").await.unwrap();
    let global = stage.begin().await;
    let statements = [
        "INSERT INTO note SELECT MAX(id) + 1, 'more' FROM note",
        "UPDATE note SET body = 'other' WHERE id = 1",
        "UPDATE note SET body = 'other' WHERE id = 1 RETURNING *",
        "INSERT INTO note VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET body = 'b'",
        "DELETE FROM note WHERE id = 2",
    ];
    for sql in statements {
        global.scope(Postgres::run_alone(&stage.resource, sql)).await.unwrap();
    }
    let alter = "ALTER TABLE note ALTER body TYPE VARCHAR(40)";
    Postgres::raw(&stage.pool, alter).await.unwrap();
    for sql in statements {
        let again = global.scope(Postgres::run_alone(&stage.resource, sql)).await;
        again.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    stage.roll_back(global).await;
}

/// The texts of the undo were the same as before the change, and the server interpreted the values
/// by the earlier type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_type_does_not_spoil_the_undo() {
    let mut stage = Stage::<Postgres>::new(&[
        "CREATE TABLE reading (id INT PRIMARY KEY, n BIGINT NOT NULL)",
        "INSERT INTO reading VALUES (1, 10), (2, 20)",
    ])
    .await;
    let options = stage.pool.connect_options().as_ref().clone();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    let changes = [
        None,
        Some("ALTER TABLE reading ALTER n TYPE DOUBLE PRECISION"),
        Some("ALTER TABLE reading ALTER n TYPE INT, ALTER id TYPE BIGINT"),
    ];
    for change in changes {
        if let Some(sql) = change {
            Postgres::raw(&stage.pool, sql).await.unwrap();
        }
        let before = stage.dump("reading", &["id", "n"]).await;
        let global = stage.begin().await;
        for sql in [
            "UPDATE reading SET n = 11 WHERE id = 1",
            "DELETE FROM reading WHERE id = 2",
            "INSERT INTO reading VALUES (3, 30)",
        ] {
            global.scope(Postgres::run_alone(&stage.resource, sql)).await.unwrap();
        }
        stage.roll_back(global).await;
        assert_eq!(stage.dump("reading", &["id", "n"]).await, before, "after {change:?}");
    }
}

const TOUCH: &str = "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN RETURN NEW; END $$";
const TOUCHES: &str =
    "CREATE TRIGGER touches BEFORE INSERT ON note FOR EACH ROW EXECUTE FUNCTION touch()";

/// PostgreSQL gives such a column its next number, and accepts no other value from an UPDATE: the
/// undo did not restore the column.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_cannot_be_restored_is_not_changed() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE ticket (id INT PRIMARY KEY, seq INT GENERATED ALWAYS AS IDENTITY, n INT)",
        "INSERT INTO ticket (id, n) VALUES (1, 1)",
    ])
    .await;
    let columns = ["id", "seq", "n"];
    let before = stage.dump("ticket", &columns).await;
    for sql in [
        "UPDATE ticket SET seq = DEFAULT",
        "INSERT INTO ticket (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET seq = DEFAULT",
    ] {
        let global = stage.begin().await;
        let written = stage.try_branch(&global, &[sql]).await;
        stage.roll_back(global).await;
        assert_eq!(stage.dump("ticket", &columns).await, before, "{sql}");
        assert_eq!(code(&written.unwrap_err()), "HF-AT-CLAUSE", "{sql}");
    }
    stage.check_undone("ticket", &columns, &["UPDATE ticket SET n = 2"]).await;
}

/// The database would give the row another key along with the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_the_database_changes_is_refused() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE moving (at TIMESTAMP(6) NOT NULL DEFAULT '2020-01-01' \
         ON UPDATE CURRENT_TIMESTAMP(6) PRIMARY KEY, n BIGINT)",
        "INSERT INTO moving (n) VALUES (1)",
    ])
    .await;
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &["UPDATE moving SET n = 2"]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-KEY-CHANGED");
    stage.roll_back(global).await;
    stage.check_undone("moving", &["at", "n"], &["DELETE FROM moving"]).await;
}
