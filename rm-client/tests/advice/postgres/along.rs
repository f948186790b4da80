//! Foreign keys that delete or change rows along.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE par (id BIGINT PRIMARY KEY)",
        "CREATE TABLE loose (par BIGINT REFERENCES par ON DELETE CASCADE, n INT)",
        "CREATE TABLE heeded (id BIGINT PRIMARY KEY, \
         par BIGINT REFERENCES par ON DELETE CASCADE)",
        "CREATE TABLE seat (par BIGINT DEFAULT 0 REFERENCES par ON DELETE SET DEFAULT, no INT, \
         PRIMARY KEY (par, no))",
        "CREATE TABLE many (id BIGINT PRIMARY KEY, par BIGINT REFERENCES par ON DELETE CASCADE)",
        "CREATE INDEX many_par ON many (par)",
        "CREATE TABLE part (id BIGINT PRIMARY KEY, par BIGINT REFERENCES par ON DELETE CASCADE) \
         PARTITION BY RANGE (id)",
        "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE part_low ADD FOREIGN KEY (par) REFERENCES par ON DELETE CASCADE",
        "CREATE TABLE husband (id BIGINT PRIMARY KEY, wife BIGINT)",
        "CREATE TABLE wife (id BIGINT PRIMARY KEY, \
         husband BIGINT REFERENCES husband ON DELETE CASCADE)",
        "ALTER TABLE husband ADD FOREIGN KEY (wife) REFERENCES wife ON DELETE CASCADE",
        "CREATE FUNCTION nothing() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION heeds() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM nothing(); RETURN OLD; END $$",
        "CREATE TRIGGER heeds BEFORE DELETE ON heeded FOR EACH ROW EXECUTE FUNCTION heeds()",
        "INSERT INTO par SELECT generate_series(0, 7)",
        "INSERT INTO loose VALUES (1, 1), (1, 2)",
        "INSERT INTO heeded VALUES (1, 2)",
        "INSERT INTO seat VALUES (3, 1)",
        "INSERT INTO many SELECT n, 4 FROM generate_series(1, 5001) AS n",
        "INSERT INTO part VALUES (1, 5)",
        "INSERT INTO husband VALUES (1, NULL)",
        "INSERT INTO wife VALUES (1, 1)",
        "UPDATE husband SET wife = 1",
    ],
    tables: &[
        ("par", &["id"]),
        ("loose", &["par", "n"]),
        ("heeded", &["id", "par"]),
        ("seat", &["par", "no"]),
        ("many", &["id", "par"]),
        ("part", &["id", "par"]),
        ("husband", &["id", "wife"]),
        ("wife", &["id", "husband"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 1",
        "which cannot be undone there: table public.loose has no primary key",
    )
    .outside(&["ALTER TABLE loose ADD PRIMARY KEY (n)"])
    .again(),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 2",
        "trigger heeds may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 3",
        "delete the rows that refer first, and insert them under their other key",
    )
    .instead(&[
        "DELETE FROM seat WHERE par = 3",
        "INSERT INTO seat VALUES (0, 1)",
        "DELETE FROM par WHERE id = 3",
    ]),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 4",
        "these are more than 5,000, or more than 32 keys away: delete the rows that refer first",
    )
    .instead(&["DELETE FROM many WHERE par = 4", "DELETE FROM par WHERE id = 4"]),
    Case::new(
        "CASCADE",
        "DELETE FROM par WHERE id = 5",
        "under several names, such as a partition's: delete the rows that refer first",
    )
    .instead(&["DELETE FROM part WHERE par = 5", "DELETE FROM par WHERE id = 5"]),
    Case::new(
        "CASCADE",
        "DELETE FROM husband WHERE id = 1",
        "set the references of the circle to NULL first",
    )
    .instead(&["UPDATE husband SET wife = NULL WHERE id = 1", "DELETE FROM husband WHERE id = 1"]),
];

fn trusting(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    async move { stage.handfast.at(stage.pool.clone()).trust_trigger("heeds").await.unwrap() }
        .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
