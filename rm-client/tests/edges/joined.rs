//! Changes and reads over several tables.

use std::time::Duration;

use sqlx::{MySql, Postgres, Row, Sqlite};

use crate::at::{Stage, TestDatabase, TextRow, code, on_every_database};

on_every_database!(
    a_joined_update_is_undone,
    a_joined_delete_is_undone,
    a_joined_locking_read_locks_its_rows,
    a_joined_committed_read_waits_for_every_table,
    a_row_offered_under_a_condition_is_undone,
);

const TABLES: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, owner BIGINT, n INT, tag VARCHAR(16))",
    "CREATE TABLE entry (account BIGINT NOT NULL, no INT NOT NULL, n INT, \
     PRIMARY KEY (account, no))",
    "INSERT INTO account VALUES (1, 7, 10, 'a'), (2, 7, 20, NULL), (3, 8, 30, 'c')",
    // Account 1 has two entries, so that a join shows it twice; account 3 has none.
    "INSERT INTO entry VALUES (1, 1, 5), (1, 2, 6), (2, 1, 7), (9, 1, 8)",
];
const ACCOUNT: &[&str] = &["id", "owner", "n", "tag"];
const ENTRY: &[&str] = &["account", "no", "n"];

/// Runs a statement plainly and rolled back, then in a branch: both must count and leave the same,
/// and the rollback must bring both tables back.
async fn compare<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) {
    let before = both(stage).await;
    let plain = plainly(stage, sql).await;
    restore(stage, &before).await;
    let global = stage.begin().await;
    let counted = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            let counted = DB::run(&mut local, sql).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>(counted)
        })
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!((counted, both(stage).await), plain, "{sql}");
    assert_ne!(plain.1, before, "{sql} changes something");
    stage.roll_back(global).await;
    assert_eq!(both(stage).await, before, "{sql} is undone");
    assert_eq!(stage.undo_rows().await, 0, "{sql}");
}

async fn both<DB: TestDatabase>(stage: &Stage<DB>) -> (Vec<TextRow>, Vec<TextRow>) {
    (stage.dump("account", ACCOUNT).await, stage.dump("entry", ENTRY).await)
}

type Answer = (u64, (Vec<TextRow>, Vec<TextRow>));

/// The count and the tables after a statement outside of any global.
async fn plainly<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) -> Answer {
    let counted =
        DB::run_alone(&stage.resource, sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    (counted, both(stage).await)
}

async fn restore<DB: TestDatabase>(stage: &Stage<DB>, rows: &(Vec<TextRow>, Vec<TextRow>)) {
    for (table, rows) in [("account", &rows.0), ("entry", &rows.1)] {
        DB::raw(&stage.pool, &format!("DELETE FROM {table}")).await.unwrap();
        for row in rows {
            let cells = row.iter().map(|cell| match cell {
                Some(text) => format!("'{text}'"),
                None => "NULL".to_owned(),
            });
            let cells = cells.collect::<Vec<_>>().join(", ");
            let sql = format!("INSERT INTO {table} VALUES ({cells})");
            DB::raw(&stage.pool, &sql).await.unwrap();
        }
    }
}

async fn a_joined_update_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TABLES).await;
    let statements: &[&str] = match DB::NAME_IN_TESTS {
        "mysql" => &[
            "UPDATE account a JOIN entry e ON e.account = a.id SET a.tag = 'x'",
            "UPDATE account a JOIN entry e ON e.account = a.id SET a.n = e.n + a.n WHERE e.no = 1",
            "UPDATE account, entry SET account.n = entry.n WHERE entry.account = account.id \
             AND entry.no = 1",
            "UPDATE entry e LEFT JOIN account a ON e.account = a.id SET tag = 'x', owner = 1",
            "UPDATE account a JOIN (SELECT account, SUM(n) AS s FROM entry GROUP BY account) q \
             ON q.account = a.id SET a.n = q.s",
            "UPDATE account a JOIN (SELECT id FROM account ORDER BY id LIMIT 1 FOR UPDATE) q \
             ON q.id = a.id SET a.tag = 'q', a.n = a.n + 1",
            "UPDATE account a JOIN account b ON b.id = a.id + 1 SET a.n = b.n",
            // Two tables; a row of one may be missing.
            "UPDATE account a JOIN entry e ON e.account = a.id SET a.n = 0, e.n = 9",
            "UPDATE account a LEFT JOIN entry e ON e.account = a.id SET a.n = 0, e.n = 9",
        ],
        "sqlite" => &[
            "UPDATE account SET tag = 'x' FROM entry e WHERE e.account = account.id",
            "UPDATE account AS a SET n = e.n + a.n FROM entry e WHERE e.account = a.id \
             AND e.no = 1",
            "UPDATE account SET n = q.s FROM (SELECT account, SUM(n) AS s FROM entry \
             GROUP BY account) q WHERE q.account = account.id",
            "UPDATE account SET tag = 'q' FROM (SELECT id FROM account ORDER BY n LIMIT 1) q \
             WHERE q.id = account.id",
        ],
        _ => &[
            "UPDATE account SET tag = 'x' FROM entry e WHERE e.account = account.id",
            "UPDATE account AS a SET n = e.n + a.n FROM entry e WHERE e.account = a.id \
             AND e.no = 1",
            "UPDATE account SET n = q.s FROM (SELECT account, SUM(n) AS s FROM entry \
             GROUP BY account) q WHERE q.account = account.id",
            "UPDATE account SET tag = q.tag FROM (SELECT id, 'q' AS tag FROM account ORDER BY n \
             LIMIT 1 FOR UPDATE SKIP LOCKED) q WHERE q.id = account.id",
            "UPDATE account SET tag = 'q' FROM entry WHERE entry.account = account.id AND id IN \
             (SELECT id FROM account ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)",
            "WITH q AS (SELECT account FROM entry WHERE no = 2) \
             UPDATE account a SET n = b.n FROM q JOIN account b ON b.id = q.account + 1 \
             WHERE a.id = q.account",
            "UPDATE account SET n = v.n FROM (VALUES (1, 100), (3, 300)) AS v(id, n) \
             WHERE account.id = v.id",
            "UPDATE account SET n = u.n FROM unnest(ARRAY[1, 2], ARRAY[5, 6]) AS u(id, n) \
             WHERE account.id = u.id",
        ],
    };
    for sql in statements {
        compare(&stage, sql).await;
    }
}

async fn a_joined_delete_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TABLES).await;
    let statements: &[&str] = match DB::NAME_IN_TESTS {
        "mysql" => &[
            "DELETE a FROM account a JOIN entry e ON e.account = a.id",
            "DELETE FROM e USING entry e LEFT JOIN account a ON a.id = e.account \
             WHERE a.id IS NULL",
            "DELETE a.* FROM account AS a WHERE a.owner = 7",
            "DELETE a, e FROM account a LEFT JOIN entry e ON e.account = a.id",
            "DELETE e FROM account a LEFT JOIN entry e ON e.account = a.id WHERE a.n > 10",
            // Account 2 is both the next one and the one before.
            "DELETE a, b FROM account a JOIN account b ON b.id = a.id + 1",
            "DELETE a, e, b FROM account a JOIN account b ON b.id = a.id JOIN entry e \
             ON e.account = a.id",
        ],
        "sqlite" => &["DELETE FROM account WHERE id IN (SELECT account FROM entry)"],
        _ => &[
            "DELETE FROM account USING entry e WHERE e.account = account.id",
            "DELETE FROM entry AS e USING account a JOIN account b USING (owner) \
             WHERE e.account = a.id AND b.id <> a.id",
        ],
    };
    for sql in statements {
        compare(&stage, sql).await;
    }
}

/// A row that the statement has locked is held against other globals; the others are free.
async fn a_joined_locking_read_locks_its_rows<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TABLES).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let join = "SELECT a.n, e.n FROM account a LEFT JOIN entry e ON e.account = a.id";
    let of = if DB::NAME_IN_TESTS == "mysql" { "" } else { " OF a" };
    let group = "SELECT MAX(n) FROM account WHERE owner = 8 FOR UPDATE";
    let mut reads = vec![format!("{join} WHERE a.owner = 8 FOR UPDATE{of}")];
    if DB::NAME_IN_TESTS != "postgres" {
        reads.push(group.to_owned());
    }
    for sql in reads {
        let reader = stage.begin().await;
        stage.branch(&reader, &[&sql]).await;
        let writer = stage.begin().await;
        stage.branch(&writer, &["UPDATE account SET n = n WHERE owner = 7"]).await;
        let held = DB::run_alone(&impatient, "UPDATE account SET n = 0 WHERE owner = 8");
        let refused = writer.scope(held).await.unwrap_err();
        assert_eq!(code(&refused), "HF-TC-ROW-LOCKED", "{sql}");
        stage.roll_back(writer).await;
        stage.roll_back(reader).await;
    }
}

async fn a_joined_committed_read_waits_for_every_table<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TABLES).await;
    let join = "SELECT a.n, e.n FROM account a JOIN entry e ON e.account = a.id WHERE a.id = 2";
    for (writes, locked) in [
        ("UPDATE account SET n = 0 WHERE id = 2", true),
        ("UPDATE entry SET n = 0 WHERE account = 2", true),
        ("UPDATE entry SET n = 0 WHERE account = 1", false),
    ] {
        let writer = stage.begin().await;
        stage.branch(&writer, &[writes]).await;
        let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
        let read = async {
            let mut local = stage.resource.begin().await?;
            DB::read(&mut local, join).await
        };
        let answer = reader.scope(read).await;
        match answer {
            Ok(rows) => assert!(!locked && rows.len() == 1, "{writes}"),
            Err(error) => {
                assert!(locked, "{writes}: {error}");
                assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
            }
        }
        stage.roll_back(reader).await;
        stage.roll_back(writer).await;
    }
}

async fn a_row_offered_under_a_condition_is_undone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TABLES).await;
    let none = "NOT EXISTS (SELECT 1 FROM account WHERE n > 100)";
    let dual = if DB::NAME_IN_TESTS == "mysql" { " FROM DUAL" } else { "" };
    let plain = format!("INSERT INTO account (id, n) SELECT 5, 50{dual} WHERE {none}");
    let upsert = if DB::NAME_IN_TESTS == "mysql" {
        format!(
            "INSERT INTO account (id, n) SELECT 1, 50{dual} WHERE {none} \
             ON DUPLICATE KEY UPDATE n = account.n + VALUES(n)"
        )
    } else {
        format!(
            "INSERT INTO account (id, n) SELECT 1, 50 WHERE {none} \
             ON CONFLICT (id) DO UPDATE SET n = account.n + excluded.n"
        )
    };
    // A row that is not there may not be missed when it is not offered.
    let fresh = upsert.replace("SELECT 1, 50", "SELECT 6, 50");
    for sql in [&plain, &upsert, &fresh] {
        compare(&stage, sql).await;
        let refused = sql.replace("n > 100", "n > 1");
        let before = both(&stage).await;
        let global = stage.begin().await;
        stage.branch(&global, &[&refused]).await;
        assert_eq!(both(&stage).await, before, "{refused} offers no row");
        stage.roll_back(global).await;
        assert_eq!(both(&stage).await, before);
    }
}

/// The rows that the application asked for come first and are the database's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_rows_of_other_tables_are_right() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let global = stage.begin().await;
    let sql = "UPDATE account SET n = q.s FROM (SELECT account, CAST(SUM(n) AS INT) AS s \
               FROM entry GROUP BY account) q WHERE q.account = account.id RETURNING *";
    let mut rows = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            let rows = sqlx::query(sql).fetch_all(&mut local).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>(rows)
        })
        .await
        .unwrap();
    rows.sort_by_key(|row| row.get::<i64, _>(0));
    let found: Vec<(i64, i32, i64, i32)> =
        rows.iter().map(|row| (row.get(0), row.get(2), row.get(4), row.get(5))).collect();
    assert_eq!(found, [(1, 11, 1, 11), (2, 7, 2, 7)]);
    stage.roll_back(global).await;
}

/// The advice of the refusals works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_chooses_by_chance_is_refused_with_advice() {
    let stage = Stage::<Postgres>::new(TABLES).await;
    let refused = "UPDATE account SET n = e.n FROM entry e WHERE e.account = account.id \
                   AND random() < 2";
    let advised = "UPDATE account SET n = e.n FROM (SELECT account, n FROM entry \
                   WHERE random() < 2 AND no = 1) e WHERE e.account = account.id";
    let global = stage.begin().await;
    let error = stage.try_branch(&global, &[refused]).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-SEVERAL-TABLES");
    stage.roll_back(global).await;
    compare(&stage, advised).await;
}

/// A table updated under two names has rows with two images; one that refers to itself has rows
/// that would have to be deleted in an order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_table_under_two_names_is_refused() {
    let stage = Stage::<MySql>::new(TABLES).await;
    let tree = "CREATE TABLE tree (id BIGINT PRIMARY KEY, up BIGINT, \
                FOREIGN KEY (up) REFERENCES tree (id))";
    MySql::raw(&stage.pool, tree).await.unwrap();
    let global = stage.begin().await;
    for sql in [
        "UPDATE account a JOIN account b ON b.id = a.id + 1 SET a.n = 1, b.n = 2",
        "DELETE a, b FROM tree a JOIN tree b ON b.up = a.id",
    ] {
        let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&error), "HF-AT-SEVERAL-TABLES", "{sql}");
    }
    stage.roll_back(global).await;
}

/// MySQL checks foreign keys row by row: the parents must come back first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parents_and_children_deleted_at_once_come_back() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE parent (id BIGINT NOT NULL PRIMARY KEY, n INT)",
        "CREATE TABLE child (id BIGINT NOT NULL PRIMARY KEY, parent BIGINT NOT NULL, \
         FOREIGN KEY (parent) REFERENCES parent (id))",
        "INSERT INTO parent VALUES (1, 1), (2, 2)",
        "INSERT INTO child VALUES (10, 1), (11, 1), (12, 2)",
    ])
    .await;
    let sql = "DELETE parent, child FROM parent JOIN child ON child.parent = parent.id";
    stage.check_undone("parent", &["id", "n"], &[sql]).await;
    stage.check_undone("child", &["id", "parent"], &[sql]).await;
}

/// SQLite's REPLACE of a row that a condition decides on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conditional_replace_is_undone() {
    let stage = Stage::<Sqlite>::new(TABLES).await;
    for sql in [
        "REPLACE INTO account SELECT 1, 2, 3, 'r' WHERE EXISTS (SELECT 1 FROM entry)",
        "INSERT OR REPLACE INTO account SELECT 6, 2, 3, 'r' WHERE 1",
    ] {
        compare(&stage, sql).await;
    }
}
