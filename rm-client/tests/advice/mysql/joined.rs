//! Changes over several tables.

use sqlx::MySql;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE item (id BIGINT PRIMARY KEY, n INT, name VARCHAR(20))",
        "CREATE TABLE other (id BIGINT PRIMARY KEY, item BIGINT, n INT)",
        "CREATE TABLE tree (id BIGINT PRIMARY KEY, above BIGINT, \
         FOREIGN KEY (above) REFERENCES tree (id))",
        "CREATE TABLE husband (id BIGINT PRIMARY KEY, wife BIGINT)",
        "CREATE TABLE wife (id BIGINT PRIMARY KEY, husband BIGINT, \
         FOREIGN KEY (husband) REFERENCES husband (id))",
        "ALTER TABLE husband ADD FOREIGN KEY (wife) REFERENCES wife (id)",
        "CREATE TABLE team (id BIGINT PRIMARY KEY, code INT UNIQUE)",
        "CREATE TABLE member (id BIGINT PRIMARY KEY, code INT, n INT, \
         FOREIGN KEY (code) REFERENCES team (code))",
        "INSERT INTO item VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO other VALUES (1, 1, 5), (2, 2, 6)",
        "INSERT INTO tree VALUES (1, NULL), (2, NULL)",
        "INSERT INTO husband VALUES (1, NULL)",
        "INSERT INTO wife VALUES (1, NULL)",
        "INSERT INTO team VALUES (1, 1), (2, 2)",
        "INSERT INTO member VALUES (1, 1, 0), (2, NULL, 0)",
    ],
    tables: &[
        ("item", &["id", "n", "name"]),
        ("other", &["id", "item", "n"]),
        ("tree", &["id", "above"]),
        ("husband", &["id", "wife"]),
        ("wife", &["id", "husband"]),
        ("team", &["id", "code"]),
        ("member", &["id", "code", "n"]),
    ],
};

/// Rows that were chosen by chance, locked.
const CHOSEN: &str =
    "SELECT item.id FROM item JOIN other ON other.item = item.id WHERE RAND() < 2 FOR UPDATE";

pub(super) const CASES: &[Case<MySql>] = &[
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item JOIN other ON other.item = item.id SET item.n = other.n WHERE RAND() < 2",
        "or by a SELECT before",
    )
    .instead(&[
        CHOSEN,
        "UPDATE item JOIN other ON other.item = item.id SET item.n = other.n \
         WHERE item.id IN (1, 2)",
    ]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item JOIN other ON other.item = item.id SET item.n = 0, other.n = 0 \
         WHERE RAND() < 2",
        "it chooses rows by chance; choose them by a SELECT before",
    )
    .instead(&[
        CHOSEN,
        "UPDATE item JOIN other ON other.item = item.id SET item.n = 0, other.n = 0 \
         WHERE item.id IN (1, 2)",
    ]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item a JOIN item b ON b.id = a.id + 1 SET a.n = 0, b.name = 'q' WHERE a.id = 1",
        "it writes one table under two names; write one statement a name",
    )
    .instead(&[
        "UPDATE item a JOIN item b ON b.id = a.id + 1 SET a.n = 0 WHERE a.id = 1",
        "UPDATE item a JOIN item b ON b.id = a.id + 1 SET b.name = 'q' WHERE a.id = 1",
    ]),
    Case::new(
        "SEVERAL-TABLES",
        "DELETE a, b FROM tree a JOIN tree b ON b.id = a.id + 1 WHERE a.id = 1",
        "write one DELETE a name",
    )
    .instead(&["DELETE FROM tree WHERE id = 1", "DELETE FROM tree WHERE id = 2"]),
    Case::new(
        "SEVERAL-TABLES",
        "DELETE husband, wife FROM husband JOIN wife ON wife.id = husband.id",
        "the tables refer to each other; write one DELETE a table",
    )
    .instead(&["DELETE FROM husband WHERE id = 1", "DELETE FROM wife WHERE id = 1"]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE team JOIN member ON member.id = team.id SET team.code = 9, member.n = 1 \
         WHERE team.id = 2",
        "it assigns a column to which another of its tables refers; write one UPDATE a table",
    )
    .instead(&[
        "UPDATE team JOIN member ON member.id = team.id SET team.code = 9 WHERE team.id = 2",
        "UPDATE team JOIN member ON member.id = team.id SET member.n = 1 WHERE team.id = 2",
    ]),
    Case::new(
        "SEVERAL-TABLES",
        "UPDATE item JOIN other ON other.item = item.id SET n = 0",
        "write the table before each column that is assigned",
    )
    .instead(&["UPDATE item JOIN other ON other.item = item.id SET item.n = 0"])
    .same_as(&["UPDATE item SET n = 0 WHERE id < 3"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
