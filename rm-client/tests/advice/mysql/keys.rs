//! Keys that change, or that are not known.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::MySql;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::Stage;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name VARCHAR(20))",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE stamped (at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) \
         ON UPDATE CURRENT_TIMESTAMP(6) PRIMARY KEY, n INT)",
        "CREATE TABLE prefixed (id VARCHAR(20) NOT NULL, n INT, PRIMARY KEY (id(3)))",
        "CREATE TABLE counted (id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT, \
         name VARCHAR(20) UNIQUE)",
        "CREATE TABLE spelt (id VARCHAR(20) PRIMARY KEY, n INT)",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO stamped VALUES ('2026-01-01 00:00:00', 1)",
        "INSERT INTO prefixed VALUES ('aaaa', 1)",
        "INSERT INTO counted VALUES (1, 1, 'a'), (2, 2, NULL)",
        "INSERT INTO spelt VALUES ('a', 1), ('b', 2)",
        "CREATE TRIGGER spells BEFORE UPDATE ON spelt FOR EACH ROW SET NEW.id = UPPER(NEW.id)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        // Its key is the time.
        ("stamped", &["n"]),
        ("prefixed", &["id", "n"]),
        // Its numbers go on when a statement is taken back.
        ("counted", &["n", "name"]),
        ("spelt", &["id", "n"]),
    ],
};

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new(
        "KEY-CHANGED",
        "UPDATE item JOIN other ON other.item = item.id SET item.id = 105 WHERE other.id = 1",
        "change the key by an UPDATE of its own",
    )
    .instead(&["UPDATE item SET id = 105 WHERE id = 1"]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE stamped SET n = 5",
        "by ON UPDATE CURRENT_TIMESTAMP: delete the row and insert it again",
    )
    .instead(&["DELETE FROM stamped", "INSERT INTO stamped VALUES ('2026-02-02 00:00:00', 5)"]),
    Case::new(
        "KEY-CHANGED",
        "INSERT INTO item VALUES (1, 5, 'q') ON DUPLICATE KEY UPDATE id = 9",
        "change the key by an UPDATE of its own",
    )
    .instead(&["UPDATE item SET id = 9 WHERE id = 1"]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE item SET id = id + 100 WHERE id < 3",
        "change one row at a time, to a value that the statement shows",
    )
    .too_late()
    .instead(&[
        "UPDATE item SET id = 101 WHERE id = 1",
        "UPDATE item SET id = id + 100 WHERE id = 2",
    ]),
    Case::new(
        "KEY-CHANGED",
        "UPDATE prefixed SET id = 'bbbb' WHERE id = 'aaaa'",
        "delete the row and insert it under its other key",
    )
    .too_late()
    .instead(&[
        "DELETE FROM prefixed WHERE id = 'aaaa'",
        "INSERT INTO prefixed VALUES ('bbbb', 1)",
    ]),
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
        "INSERT INTO counted VALUES ((SELECT 50), 5, 'q')",
        "compute it first and bind it",
    )
    .instead_bound(&[("INSERT INTO counted VALUES (?, 5, 'q')", &[50])]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO counted VALUES (60, 5, 'q'), (NULL, 6, 'r')",
        "use one statement for each kind",
    )
    .instead(&[
        "INSERT INTO counted VALUES (60, 5, 'q')",
        "INSERT INTO counted VALUES (NULL, 6, 'r')",
    ]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO item VALUES ((SELECT MIN(id) FROM other), 5, 'q') \
         ON DUPLICATE KEY UPDATE n = 5",
        "what the row offers is not known before; compute it and bind it",
    )
    .instead_bound(&[("INSERT INTO item VALUES (?, 5, 'q') ON DUPLICATE KEY UPDATE n = 5", &[1])]),
    Case::new(
        "KEY-UNKNOWN",
        "INSERT INTO counted (n, name) VALUES (5, 'a'), (6, NULL) ON DUPLICATE KEY UPDATE n = 7",
        "one of several rows offers no value of a unique index; insert them one by one",
    )
    .instead(&[
        "INSERT INTO counted (n, name) VALUES (5, 'a') ON DUPLICATE KEY UPDATE n = 7",
        "INSERT INTO counted (n, name) VALUES (6, NULL) ON DUPLICATE KEY UPDATE n = 7",
    ]),
    Case::new("KEY-NULL", "INSERT INTO item VALUES (NULL, 5, 'q')", "give it a value")
        .instead(&["INSERT INTO item VALUES (9, 5, 'q')"])
        .same_as(&["INSERT INTO item VALUES (9, 5, 'q')"]),
];

fn trusting(stage: &Stage<MySql>) -> LocalBoxFuture<'_, AtResource<MySql>> {
    async move { stage.handfast.at(stage.pool.clone()).trust_trigger("spells").await.unwrap() }
        .boxed_local()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
