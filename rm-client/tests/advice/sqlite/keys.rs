//! Keys that change, or that are not known.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::Sqlite;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id INTEGER PRIMARY KEY, n INT, name TEXT)",
        "CREATE TABLE other (id INTEGER PRIMARY KEY, item INT, n INT)",
        "CREATE TABLE spelt (id TEXT COLLATE NOCASE PRIMARY KEY, n INT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO spelt VALUES ('a', 1), ('b', 2)",
        "CREATE TRIGGER spells AFTER UPDATE OF n ON spelt BEGIN \
         UPDATE spelt SET id = upper(id) WHERE rowid = NEW.rowid; END",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("spelt", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<Sqlite>] = &[
    Case::new(
        "KEY-CHANGED",
        "UPDATE item SET id = other.n + 100 FROM other WHERE item.id = other.item AND other.id = 1",
        "change the key by an UPDATE of its own",
    )
    .instead(&["UPDATE item SET id = 105 WHERE id = 1"]),
    Case::new(
        "KEY-CHANGED",
        "INSERT INTO item VALUES (1, 5, 'q') ON CONFLICT (id) DO UPDATE SET id = 9",
        "change the key by an UPDATE of its own",
    )
    .instead(&["UPDATE item SET id = 9 WHERE id = 1"]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE spelt SET n = 7 WHERE id = 'a'",
        "by a trigger: let it leave the key as it is",
    )
    .refused_on(trusting)
    .too_late()
    .outside(&["DROP TRIGGER spells"])
    .instead(&["UPDATE spelt SET n = 7, id = 'A' WHERE id = 'a'"]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO item VALUES (1 + random() % 1, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = 5",
        "what the row offers is not known before; compute it and bind it",
    )
    .instead_bound(&[(
        "INSERT INTO item VALUES (?, 5, 'q') ON CONFLICT (id) DO UPDATE SET n = 5",
        &[1],
    )]),
];

fn trusting(stage: &Stage<Sqlite>) -> LocalBoxFuture<'_, AtResource<Sqlite>> {
    async move { stage.handfast.at(stage.pool.clone()).trust_trigger("spells").await.unwrap() }
        .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
