//! Foreign keys that delete or change rows along.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::MySql;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE par (id BIGINT PRIMARY KEY)",
        "CREATE TABLE loose (par BIGINT, n INT, \
         FOREIGN KEY (par) REFERENCES par (id) ON DELETE CASCADE)",
        "CREATE TABLE heeded (id BIGINT PRIMARY KEY, par BIGINT, \
         FOREIGN KEY (par) REFERENCES par (id) ON DELETE CASCADE)",
        "CREATE TABLE many (id BIGINT PRIMARY KEY, par BIGINT, \
         FOREIGN KEY (par) REFERENCES par (id) ON DELETE CASCADE)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, par BIGINT)",
        "CREATE TABLE tree (id BIGINT PRIMARY KEY, above BIGINT, n INT, \
         FOREIGN KEY (above) REFERENCES tree (id) ON DELETE CASCADE)",
        "CREATE FUNCTION nothing() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE TRIGGER heeds BEFORE INSERT ON heeded FOR EACH ROW SET @heard = nothing()",
        "INSERT INTO par SELECT seq FROM seq_0_to_7",
        "INSERT INTO loose VALUES (1, 1), (1, 2)",
        "INSERT INTO heeded VALUES (1, 2)",
        "INSERT INTO many SELECT seq, 4 FROM seq_1_to_5001",
        "INSERT INTO other VALUES (1, 5)",
        "INSERT INTO tree VALUES (1, NULL, 0), (2, 1, 0), (3, NULL, 0), (4, 3, 0)",
        "UPDATE tree SET above = 4 WHERE id = 3",
    ],
    tables: &[
        ("par", &["id"]),
        ("loose", &["par", "n"]),
        ("heeded", &["id", "par"]),
        ("many", &["id", "par"]),
        ("other", &["id", "par"]),
        ("tree", &["id", "above", "n"]),
    ],
};

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new("CASCADE", "DELETE FROM par WHERE id = 1", "which cannot be undone there: table ")
        .outside(&["ALTER TABLE loose ADD PRIMARY KEY (n)"])
        .again(),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 2",
        "trigger heeds would fire when the statement is undone (by INSERT), and may write unseen",
    )
    .on(trusting)
    .again(),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 4",
        "these are more than 5,000, or more than 32 keys away: delete the rows that refer first",
    )
    .instead(&["DELETE FROM many WHERE par = 4", "DELETE FROM par WHERE id = 4"]),
    Case::new(
        "CASCADE",
        "DELETE par, other FROM par JOIN other ON other.par = par.id",
        "write one DELETE a table",
    )
    .instead(&["DELETE FROM par WHERE id = 5", "DELETE FROM other WHERE par = 5"]),
    Case::new(
        "CASCADE",
        "REPLACE INTO tree VALUES (1, NULL, 5)",
        "change the row by an UPDATE, or delete it and insert it again",
    )
    .instead(&["DELETE FROM tree WHERE id = 1", "INSERT INTO tree VALUES (1, NULL, 5)"]),
    Case::new(
        "CASCADE",
        "DELETE FROM tree WHERE id = 3",
        "set the references of the circle to NULL first",
    )
    .instead(&["UPDATE tree SET above = NULL WHERE id = 3", "DELETE FROM tree WHERE id = 3"]),
];

fn trusting(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    async move { stage.handfast.at(stage.pool.clone()).trust_trigger("heeds").await.unwrap() }
        .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
