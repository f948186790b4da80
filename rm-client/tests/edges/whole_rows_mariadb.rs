//! Tables of MariaDB without any key: all values of a row together name it, so that one of several
//! equal rows stands for another.

use std::time::Duration;

use handfast_core::{Resolution, RowChange, RowStanding};
use sqlx::MySql;

use crate::at::{Stage, TestDatabase, code};

const BAG: &[&str] = &[
    "CREATE TABLE bag (a int, b varchar(9), n decimal(40,20), f double, g float, j text, \
     at timestamp(6) NULL, d date, twice int GENERATED ALWAYS AS (a * 2), \
     e enum('p', 'q'), x varbinary(9), l char(3) CHARACTER SET latin1, bits bit(9), u int UNIQUE, \
     KEY (a))",
    "INSERT INTO bag (a, b, n, f, g, j, at, d, e, x, l, bits) VALUES \
     (1, 'x', 12345678901234567890.5, 0.1, 0.1, '{\"k\": 1}', '2026-01-02 03:04:05.6', \
      '2026-01-02', 'p', x'00ff', 'é', b'101'), \
     (1, 'x', 12345678901234567890.5, 0.1, 0.1, '{\"k\": 1}', '2026-01-02 03:04:05.6', \
      '2026-01-02', 'p', x'00ff', 'é', b'101'), \
     (1, 'X', 12345678901234567890.6, -0e0, 16777216, '{\"k\":1}', NULL, NULL, 'q', x'00', 'e', 0), \
     (1, 'x ', 12345678901234567890.6, 0e0, 16777217, '{\"k\":1}', NULL, NULL, 'q', x'0000', 'E', 0)",
    "INSERT INTO bag (a) VALUES (NULL), (NULL)",
    "INSERT INTO bag (a, u) VALUES (7, 7)",
];
const COLUMNS: &[&str] =
    &["CONCAT_WS(',', QUOTE(a), QUOTE(HEX(b)), QUOTE(n), QUOTE(f), QUOTE(g), \
     QUOTE(HEX(j)), QUOTE(at), QUOTE(d), QUOTE(e), QUOTE(HEX(x)), QUOTE(HEX(l)), QUOTE(bits + 0), \
     QUOTE(u))"];

async fn stage() -> Stage<MySql> {
    Stage::<MySql>::new(BAG).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_inserted_and_deleted_and_undone() {
    let columns = "a, b, n, f, g, j, at, d, e, x, l, bits";
    let again = format!("INSERT INTO bag ({columns}) SELECT {columns} FROM bag");
    let again = again.as_str();
    let stage = stage().await;
    for statements in [
        &["INSERT INTO bag (a, b) VALUES (1, 'x'), (1, 'x'), (1, 'X'), (2, NULL)"][..],
        &[again],
        &[again, again, "DELETE FROM bag WHERE a = 1"],
        &["DELETE FROM bag"],
        &["DELETE FROM bag ORDER BY b DESC, n LIMIT 2"],
        &["DELETE FROM bag WHERE a = (SELECT MIN(id) FROM (SELECT 1 AS id) AS one)"],
        &["DELETE FROM bag WHERE a = 1 RETURNING a", again],
        &["DELETE FROM bag WHERE b = 'x'", "INSERT INTO bag (a, b) VALUES (1, 'X')"],
        &["INSERT IGNORE INTO bag (a, u) VALUES (8, 7), (8, 8)"],
        &["INSERT INTO bag SET a = 3, f = -0e0, g = 0.1"],
        &["INSERT INTO bag (a) SELECT seq % 3 FROM seq_1_to_700"],
    ] {
        stage.check_undone("bag", COLUMNS, statements).await;
    }
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM bag WHERE a = 1", again]).await;
    stage.commit(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM bag").await.as_deref(), Some("6"));
}

/// The rows that MariaDB returns for the images carry no count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_the_rows() {
    let stage = stage().await;
    let global = stage.begin().await;
    for (sql, expected) in [
        ("INSERT INTO bag (a) VALUES (5), (5), (6)", 3),
        ("INSERT IGNORE INTO bag (u) VALUES (7)", 0),
        ("INSERT INTO bag (a) SELECT 9 FROM seq_1_to_1203", 1203),
        ("DELETE FROM bag WHERE a = 9 LIMIT 700", 700),
        ("DELETE FROM bag WHERE a = 9", 503),
        ("DELETE FROM bag WHERE a = 9 LIMIT 1", 0),
    ] {
        let changed = global.scope(MySql::run_alone(&stage.resource, sql)).await.unwrap();
        assert_eq!(changed, expected, "{sql}");
    }
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM bag").await.as_deref(), Some("7"));
}

/// Which of equal rows is meant cannot be said, so all of them are locked as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_rows_share_a_lock() {
    let stage = stage().await;
    let pool = MySql::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["INSERT INTO bag (a, b) VALUES (5, 'y')"]).await;
    let global = stage.begin().await;
    for sql in ["INSERT INTO bag (a, b) VALUES (5, 'y')", "DELETE FROM bag WHERE a = 5 AND b = 'y'"]
    {
        let equal = global.scope(MySql::run_alone(&other, sql)).await.unwrap_err();
        assert_eq!(code(&equal), "HF-TC-ROW-LOCKED", "{sql}");
    }
    let unequal = "INSERT INTO bag (a, b) VALUES (5, 'Y')";
    global.scope(MySql::run_alone(&other, unequal)).await.unwrap();
    stage.roll_back(global).await;
    stage.roll_back(holder).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM bag WHERE a = 5").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_row_needs_an_operator() {
    let stage = stage().await;
    let global = stage.begin().await;
    let inserted = "INSERT INTO bag (a, b) VALUES (5, 'y'), (6, 'z'), (6, 'z')";
    let again = "INSERT INTO bag (a, b) VALUES (6, 'z')";
    stage.branch(&global, &["DELETE FROM bag WHERE a = 7", inserted, again]).await;
    // Equal under the collation, and another row all the same.
    MySql::raw(&stage.pool, "UPDATE bag SET b = 'Y' WHERE a = 5").await.unwrap();
    let refused = stage.refused(global).await;
    assert!(refused.error.contains("1 of 3 rows"), "{}", refused.error);
    let standings: Vec<_> = refused.shown().iter().map(|row| (row.1, row.2, row.3)).collect();
    assert_eq!(
        standings,
        [
            (RowStanding::Dirty, RowChange::Left, RowChange::Left),
            (RowStanding::Clean, RowChange::Inserted, RowChange::Inserted),
            (RowStanding::Clean, RowChange::Removed, RowChange::Removed),
        ]
    );
    stage.end(&refused, Resolution::RestoreClean).await;
    let kept = "SELECT GROUP_CONCAT(a, COALESCE(b, '') ORDER BY a) FROM bag WHERE a > 1";
    assert_eq!(stage.value(kept).await.as_deref(), Some("5Y,7"));
}

/// Foreign keys and checks are not known to hold on MySQL, so that a row is judged before it is
/// deleted. References are locked by what the rows say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_refer_are_judged_and_lock_what_they_refer_to() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE post (id bigint PRIMARY KEY)",
        "CREATE TABLE post_tag (post bigint NOT NULL, tag int CHECK (tag > 0), more json, \
         FOREIGN KEY (post) REFERENCES post (id) ON DELETE CASCADE)",
        "INSERT INTO post VALUES (1)",
        "INSERT INTO post_tag VALUES (1, 1, '{}'), (1, 1, '{}')",
    ])
    .await;
    let columns = &["post", "tag"];
    for sql in [
        "INSERT INTO post_tag VALUES (1, 1, NULL)",
        "DELETE FROM post_tag WHERE post = 1",
        "DELETE FROM post_tag WHERE (post, tag) = (1, 1)",
    ] {
        stage.check_undone("post_tag", columns, &[sql]).await;
    }
    let holder = stage.begin().await;
    stage.branch(&holder, &["INSERT INTO post VALUES (2)"]).await;
    let pool = MySql::again(&stage.pool).await;
    let other = stage.handfast.at(pool).lock_timeout(Duration::from_millis(1)).await.unwrap();
    let global = stage.begin().await;
    let child = MySql::run_alone(&other, "INSERT INTO post_tag VALUES (2, 1, NULL)");
    assert_eq!(code(&global.scope(child).await.unwrap_err()), "HF-TC-ROW-LOCKED");
    for (sql, expected) in [
        // Which rows are chosen would have to be said by key.
        ("DELETE FROM post_tag LIMIT 1", "HF-AT-NO-PRIMARY-KEY"),
        ("UPDATE post_tag SET tag = 2", "HF-AT-NO-PRIMARY-KEY"),
        ("REPLACE INTO post_tag VALUES (1, 1, NULL)", "HF-AT-NO-PRIMARY-KEY"),
        ("SELECT * FROM post_tag FOR UPDATE", "HF-AT-NO-PRIMARY-KEY"),
        // Rows without a key do not go along yet.
        ("DELETE FROM post WHERE id = 1", "HF-AT-CASCADE"),
    ] {
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), expected, "{sql}");
    }
    stage.roll_back(global).await;
    stage.roll_back(holder).await;

    for broken in ["SET SESSION check_constraint_checks = 0", "SET SESSION foreign_key_checks = 0"]
    {
        let stage = Stage::<MySql>::new(&[
            "CREATE TABLE post (id bigint PRIMARY KEY)",
            "CREATE TABLE post_tag (post bigint NOT NULL, tag int CHECK (tag > 0), \
             FOREIGN KEY (post) REFERENCES post (id))",
            "INSERT INTO post VALUES (1)",
        ])
        .await;
        let row = if broken.contains("check_constraint") { "(1, -1)" } else { "(9, 1)" };
        let insert =
            format!("{broken}; INSERT INTO post_tag VALUES {row}; {}", broken.replace('0', "1"));
        MySql::raw(&stage.pool, &insert).await.unwrap();
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &["DELETE FROM post_tag"]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROW-BREAKS-CONSTRAINT", "{broken}");
        stage.roll_back(global).await;
        assert_eq!(stage.value("SELECT COUNT(*) FROM post_tag").await.as_deref(), Some("1"));
    }
}

/// Their values do not name rows: numbers that the database gives, which its answer does not tell,
/// and shapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_values_name_no_rows() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE counted (id int NOT NULL AUTO_INCREMENT, v int, KEY (id))",
        "CREATE TABLE shapes (v int, p point)",
    ])
    .await;
    let global = stage.begin().await;
    for sql in ["INSERT INTO counted (v) VALUES (1)", "INSERT INTO shapes (v) VALUES (1)"] {
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-NO-PRIMARY-KEY", "{sql}");
    }
    stage.roll_back(global).await;
}
