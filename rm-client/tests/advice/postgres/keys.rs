//! Keys that change, or that are not known.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::Postgres;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE EXTENSION citext",
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE late (id BIGINT PRIMARY KEY DEFERRABLE, n INT)",
        "CREATE TABLE place (id BIGINT PRIMARY KEY, name TEXT)",
        "CREATE TABLE visit (id BIGINT PRIMARY KEY, place BIGINT REFERENCES place)",
        "CREATE TABLE counted (id BIGSERIAL PRIMARY KEY, n INT)",
        "CREATE TABLE pair (a INT DEFAULT 1, b BIGINT, n INT, PRIMARY KEY (a, b))",
        "CREATE TABLE spelt (id CITEXT PRIMARY KEY, n INT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO late VALUES (1, 1), (2, 2)",
        "INSERT INTO place VALUES (1, 'here'), (2, 'there')",
        "INSERT INTO visit VALUES (1, 1)",
        "INSERT INTO pair VALUES (1, 1, 1)",
        "INSERT INTO spelt VALUES ('a', 1), ('b', 2)",
        "CREATE FUNCTION spells() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.id = upper(NEW.id::text); RETURN NEW; END $$",
        "CREATE TRIGGER spells BEFORE UPDATE ON spelt FOR EACH ROW EXECUTE FUNCTION spells()",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("late", &["id", "n"]),
        ("place", &["id", "name"]),
        ("visit", &["id", "place"]),
        // Its numbers go on when a statement is taken back.
        ("counted", &["n"]),
        ("pair", &["a", "b", "n"]),
        ("spelt", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new(
        "KEY-CHANGED",
        "UPDATE late SET id = 9 WHERE id = 1",
        "delete the row and insert it under its other key",
    )
    .too_late()
    .instead(&["DELETE FROM late WHERE id = 1", "INSERT INTO late VALUES (9, 1)"]),
    Case::new(
        "KEY-CHANGED",
        "INSERT INTO place VALUES (2, 'where') ON CONFLICT (id) DO UPDATE SET id = 9",
        "insert the row under its other key, let the rows that refer to it follow, and delete it \
         under the old one",
    )
    .too_late()
    .instead(&["INSERT INTO place VALUES (9, 'there')", "DELETE FROM place WHERE id = 2"]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE item SET id = other.n + 100 FROM other WHERE item.id = other.item AND other.id = 1",
        "change the key by an UPDATE of its own",
    )
    .instead(&["UPDATE item SET id = 105 WHERE id = 1"]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE spelt SET n = 7 WHERE id = 'a'",
        "by a trigger: let it leave the key as it is",
    )
    .refused_on(trusting)
    .too_late()
    .outside(&["DROP TRIGGER spells ON spelt"])
    .instead(&["UPDATE spelt SET n = 7, id = 'A' WHERE id = 'a'"]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO counted (n) VALUES (7) ON CONFLICT (id) DO UPDATE SET n = 8",
        "or insert without ON CONFLICT",
    )
    .instead(&["INSERT INTO counted (n) VALUES (7)"]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO item VALUES (1 + floor(random())::int, 5, 'q') \
         ON CONFLICT (id) DO UPDATE SET n = 5",
        "what the row offers is not known before; compute it and bind it",
    )
    .instead_bound(&[(
        "INSERT INTO item VALUES ($1, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = 5",
        &[1],
    )]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO pair (b, n) SELECT id, n FROM other \
         ON CONFLICT (a, b) DO UPDATE SET n = excluded.n",
        "the rows do not give it; give it",
    )
    .instead(&["INSERT INTO pair (a, b, n) SELECT 1, id, n FROM other \
                ON CONFLICT (a, b) DO UPDATE SET n = excluded.n"]),
];

fn trusting(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    async move { stage.handfast.at(stage.pool.clone()).trust_trigger("spells").await.unwrap() }
        .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
