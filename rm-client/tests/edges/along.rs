//! Rows that foreign keys delete or change along with a deleted row. A DELETE of a row that such a
//! key refers to was refused, also where no row refers to it, and so was a REPLACE of a fresh row.

use handfast::AtError;
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_row_without_children_is_deleted,
    children_go_along_and_come_back,
    references_set_to_null_come_back,
    a_tree_goes_along_and_comes_back,
    a_row_reached_on_two_ways_comes_back_once,
    a_child_of_a_unique_key_goes_along,
    rows_that_go_along_are_locked_globally,
    a_child_cannot_come_in_between,
    a_child_table_without_a_key_refuses,
    a_changed_row_refers_to_an_inserted_one,
    a_trigger_of_the_undo_of_a_child_refuses,
    a_child_that_breaks_a_constraint_refuses,
    too_many_rows_along_are_refused,
    a_chain_of_too_many_keys_is_refused,
    a_column_with_a_cascade_is_not_assigned,
);

mod replaced {
    use super::{MySql, Sqlite, a_fresh_row_is_put_in, a_replaced_row_takes_its_children_along};
    use super::{a_row_of_a_tree_is_not_replaced, a_unique_value_is_replaced};

    macro_rules! tests {
        ($module:ident, $database:ty) => {
            mod $module {
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_fresh_row_is_put_in() {
                    super::a_fresh_row_is_put_in::<$database>().await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_replaced_row_takes_its_children_along() {
                    super::a_replaced_row_takes_its_children_along::<$database>().await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_unique_value_is_replaced() {
                    super::a_unique_value_is_replaced::<$database>().await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_row_of_a_tree_is_not_replaced() {
                    super::a_row_of_a_tree_is_not_replaced::<$database>().await;
                }
            }
        };
    }

    tests!(mysql, super::MySql);
    tests!(sqlite, super::Sqlite);
}

const PAR: &str = "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, n INT)";
const CHI: &str = "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, m INT, \
     FOREIGN KEY (pid) REFERENCES par (id) ON DELETE CASCADE)";
const GRA: &str = "CREATE TABLE gra (id BIGINT NOT NULL PRIMARY KEY, cid BIGINT, t VARCHAR(20), \
     FOREIGN KEY (cid) REFERENCES chi (id) ON DELETE CASCADE)";
const NOTE: &str = "CREATE TABLE note (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, cid BIGINT, \
     FOREIGN KEY (pid) REFERENCES par (id) ON DELETE SET NULL, \
     FOREIGN KEY (cid) REFERENCES chi (id) ON DELETE SET NULL)";
const FAMILY: &[&str] = &[
    PAR,
    CHI,
    GRA,
    NOTE,
    "INSERT INTO par VALUES (1, 10), (2, 20), (3, 30)",
    "INSERT INTO chi VALUES (1, 1, 5), (2, 1, NULL), (3, 2, 7), (4, NULL, 8)",
    "INSERT INTO gra VALUES (1, 1, 'a'), (2, 2, NULL), (3, 3, 'c'), (4, NULL, 'd')",
    "INSERT INTO note VALUES (1, 1, 1), (2, 1, 3), (3, 2, 2), (4, NULL, NULL), (5, 3, 4)",
];
const DUMPS: &[(&str, &[&str])] = &[
    ("par", &["id", "n"]),
    ("chi", &["id", "pid", "m"]),
    ("gra", &["id", "cid", "t"]),
    ("note", &["id", "pid", "cid"]),
];

async fn dumps<DB: TestDatabase>(stage: &Stage<DB>) -> Vec<Vec<Vec<Option<String>>>> {
    let mut all = Vec::new();
    for (table, columns) in DUMPS {
        all.push(stage.dump(table, columns).await);
    }
    all
}

/// Runs statements as one branch, compares the rows with those that the same statements leave
/// without the library, rolls back, and compares the rows with those before.
async fn check_family<DB: TestDatabase>(statements: &[&str]) {
    let plain = Stage::<DB>::new(FAMILY).await;
    for sql in statements {
        DB::raw(&plain.pool, sql).await.unwrap();
    }
    let stage = Stage::<DB>::new(FAMILY).await;
    let before = dumps(&stage).await;
    let global = stage.begin().await;
    stage.branch(&global, statements).await;
    assert_eq!(dumps(&stage).await, dumps(&plain).await, "{statements:?} does what it says");
    stage.roll_back(global).await;
    assert_eq!(dumps(&stage).await, before, "{statements:?} is undone");
    assert_eq!(stage.undo_rows().await, 0);
}

async fn refuse<DB: TestDatabase>(stage: &Stage<DB>, sql: &str, says: &str) {
    let global = stage.begin().await;
    let error = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-CASCADE", "{sql}: {error}");
    let text = AtError::of(&error).unwrap().to_string();
    assert!(text.contains(says), "{sql}: {text}");
    stage.roll_back(global).await;
}

async fn a_row_without_children_is_deleted<DB: TestDatabase>() {
    check_family::<DB>(&["INSERT INTO par VALUES (9, 90)", "DELETE FROM par WHERE id = 9"]).await;
    // As an application does that deletes the children itself.
    check_family::<DB>(&[
        "UPDATE note SET pid = NULL WHERE pid = 1",
        "UPDATE note SET cid = NULL WHERE cid IN (1, 2)",
        "DELETE FROM gra WHERE cid IN (1, 2)",
        "DELETE FROM chi WHERE pid = 1",
        "DELETE FROM par WHERE id = 1",
    ])
    .await;
}

async fn children_go_along_and_come_back<DB: TestDatabase>() {
    check_family::<DB>(&["DELETE FROM par WHERE id = 1"]).await;
    check_family::<DB>(&["DELETE FROM par"]).await;
    check_family::<DB>(&[
        "UPDATE chi SET m = 99 WHERE id = 2",
        "DELETE FROM par WHERE n < 25",
        "INSERT INTO par VALUES (1, 11)",
        "INSERT INTO chi VALUES (1, 1, 1)",
        "DELETE FROM par WHERE id = 1",
    ])
    .await;
}

async fn references_set_to_null_come_back<DB: TestDatabase>() {
    check_family::<DB>(&["DELETE FROM par WHERE id = 3"]).await;
    check_family::<DB>(&["DELETE FROM chi WHERE id IN (2, 4)", "DELETE FROM chi"]).await;
}

const TREE: &[&str] = &[
    "CREATE TABLE tree (id BIGINT NOT NULL PRIMARY KEY, above BIGINT, friend BIGINT, \
     FOREIGN KEY (above) REFERENCES tree (id) ON DELETE CASCADE, \
     FOREIGN KEY (friend) REFERENCES tree (id) ON DELETE SET NULL)",
    "INSERT INTO tree VALUES (1, NULL, NULL), (2, 1, NULL), (3, 2, 1), (4, 2, NULL), (5, 5, NULL), \
     (6, NULL, NULL)",
    "UPDATE tree SET friend = 3 WHERE id = 6",
];

async fn a_tree_goes_along_and_comes_back<DB: TestDatabase>() {
    for statement in [
        "DELETE FROM tree WHERE id = 1",
        "DELETE FROM tree WHERE id = 2",
        "DELETE FROM tree WHERE id IN (1, 2, 4)",
        "DELETE FROM tree WHERE id = 4",
        "DELETE FROM tree WHERE id = 5",
        "DELETE FROM tree",
    ] {
        let plain = Stage::<DB>::new(TREE).await;
        let counted = DB::raw(&plain.pool, statement).await.unwrap();
        let stage = Stage::<DB>::new(TREE).await;
        let before = stage.dump("tree", &["id", "above", "friend"]).await;
        let global = stage.begin().await;
        let changed = global.scope(DB::run_alone(&stage.resource, statement)).await.unwrap();
        assert_eq!(changed, counted, "{statement}");
        let after = stage.dump("tree", &["id", "above", "friend"]).await;
        assert_eq!(after, plain.dump("tree", &["id", "above", "friend"]).await, "{statement}");
        stage.roll_back(global).await;
        assert_eq!(stage.dump("tree", &["id", "above", "friend"]).await, before, "{statement}");
    }
}

async fn a_row_reached_on_two_ways_comes_back_once<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        PAR,
        CHI,
        "CREATE TABLE gra (id BIGINT NOT NULL PRIMARY KEY, cid BIGINT, pid BIGINT, own BIGINT, \
         FOREIGN KEY (pid) REFERENCES par (id) ON DELETE CASCADE, \
         FOREIGN KEY (own) REFERENCES par (id) ON DELETE SET NULL, \
         FOREIGN KEY (cid) REFERENCES chi (id) ON DELETE CASCADE)",
        "INSERT INTO par VALUES (1, 1), (2, 2)",
        "INSERT INTO chi VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO gra VALUES (1, 1, 1, 1), (2, 1, 2, 2), (3, 2, 2, 1)",
    ])
    .await;
    stage
        .check_undone("gra", &["id", "cid", "pid", "own"], &["DELETE FROM par WHERE id = 1"])
        .await;
    assert_eq!(stage.dump("chi", &["id"]).await.len(), 2);
}

async fn a_child_of_a_unique_key_goes_along<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, a INT, b VARCHAR(20), UNIQUE (a, b))",
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, y VARCHAR(20), x INT, \
         FOREIGN KEY (x, y) REFERENCES par (a, b) ON DELETE CASCADE)",
        "INSERT INTO par VALUES (1, 5, 'b'), (2, NULL, 'b'), (3, 6, 'b')",
        "INSERT INTO chi VALUES (1, 'b', 5), (2, 'b', NULL), (3, 'b', 6)",
    ])
    .await;
    stage.check_undone("chi", &["id", "y", "x"], &["DELETE FROM par WHERE id < 3"]).await;
}

async fn rows_that_go_along_are_locked_globally<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let impatient = stage.handfast.at(stage.pool.clone());
    let impatient = impatient.lock_timeout(std::time::Duration::from_millis(1)).await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE gra SET t = 'held' WHERE id = 1"]).await;
    let other = stage.begin().await;
    let delete = "DELETE FROM par WHERE id = 1";
    let error = other.scope(DB::run_alone(&impatient, delete)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
    stage.roll_back(holder).await;
    other.scope(DB::run_alone(&impatient, delete)).await.unwrap();
    // The rows whose reference has gone are held as well.
    let holder = other;
    let other = stage.begin().await;
    let update = "UPDATE note SET cid = 4 WHERE id = 1";
    let error = other.scope(DB::run_alone(&impatient, update)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
    stage.roll_back(holder).await;
}

/// Makes the statements of a connection give up waiting soon.
fn impatient<DB: TestDatabase>() -> &'static str {
    match DB::NAME_IN_TESTS {
        "postgres" => "SET lock_timeout = '300ms'",
        "mysql" => "SET innodb_lock_wait_timeout = 1",
        _ => "PRAGMA busy_timeout = 300",
    }
}

async fn a_child_cannot_come_in_between<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let global = stage.begin().await;
    let mut local = global.scope(stage.resource.begin()).await.unwrap();
    DB::run(&mut local, "DELETE FROM par WHERE id = 3").await.unwrap();
    let other: Pool<DB> = DB::again(&stage.pool).await;
    let insert = format!("{}; INSERT INTO chi VALUES (9, 3, 1)", impatient::<DB>());
    DB::raw(&other, &insert).await.unwrap_err();
    local.rollback().await.unwrap();
    DB::raw(&other, &insert).await.unwrap();
    stage.roll_back(global).await;
}

async fn a_child_table_without_a_key_refuses<DB: TestDatabase>() {
    // SQLite's row id is a key where its names are not taken.
    let more = if DB::NAME_IN_TESTS == "sqlite" { "rowid INT, _rowid_ INT, oid INT," } else { "" };
    let bare = format!(
        "CREATE TABLE bare (pid BIGINT, {more} \
         FOREIGN KEY (pid) REFERENCES par (id) ON DELETE CASCADE)"
    );
    let rows = "INSERT INTO par VALUES (1, 1), (2, 2)";
    let child = "INSERT INTO bare (pid) VALUES (1)";
    let stage = Stage::<DB>::new(&[PAR, &bare, rows, child]).await;
    refuse(&stage, "DELETE FROM par WHERE id = 1", "has no primary key").await;
    refuse(&stage, "DELETE FROM par", "has no primary key").await;
    stage.check_undone("par", &["id", "n"], &["DELETE FROM par WHERE id = 2"]).await;
}

/// Regression: the undo deleted the inserted row first, to which the changed one still referred,
/// and took that for a dirty write.
async fn a_changed_row_refers_to_an_inserted_one<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE item (id BIGINT NOT NULL PRIMARY KEY, above BIGINT, \
         FOREIGN KEY (above) REFERENCES item (id) ON DELETE CASCADE)",
        "INSERT INTO item VALUES (1, NULL), (2, 1)",
    ])
    .await;
    let upsert = match DB::NAME_IN_TESTS {
        "mysql" => {
            "INSERT INTO item VALUES (5, NULL), (2, 5) ON DUPLICATE KEY UPDATE above = VALUES(above)"
        }
        _ => {
            "INSERT INTO item VALUES (2, 5), (5, NULL) ON CONFLICT (id) DO UPDATE \
             SET above = excluded.above"
        }
    };
    stage.check_undone("item", &["id", "above"], &[upsert]).await;
}

async fn a_trigger_of_the_undo_of_a_child_refuses<DB: TestDatabase>() {
    let trigger = match DB::NAME_IN_TESTS {
        "postgres" => {
            "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO audit VALUES (1); RETURN NULL; END $$; \
             CREATE TRIGGER chi_audit AFTER INSERT ON chi FOR EACH ROW EXECUTE FUNCTION audit()"
        }
        "mysql" => {
            "CREATE TRIGGER chi_audit AFTER INSERT ON chi FOR EACH ROW INSERT INTO audit VALUES (1)"
        }
        _ => "CREATE TRIGGER chi_audit AFTER INSERT ON chi BEGIN INSERT INTO audit VALUES (1); END",
    };
    let stage = Stage::<DB>::new(FAMILY).await;
    DB::raw(&stage.pool, "CREATE TABLE audit (n INT)").await.unwrap();
    DB::raw(&stage.pool, trigger).await.unwrap();
    refuse(&stage, "DELETE FROM par WHERE id = 1", "trigger chi_audit").await;
    stage.check_undone("par", &["id", "n"], &["DELETE FROM par WHERE id = 3"]).await;
}

const PICKY: &str = "CREATE TABLE picky (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, m INT, \
     CONSTRAINT small CHECK (m < 6), FOREIGN KEY (pid) REFERENCES par (id) ON DELETE CASCADE)";

async fn a_child_that_breaks_a_constraint_refuses<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let broken: &[&str] = match DB::NAME_IN_TESTS {
        "postgres" => &["ALTER TABLE chi ADD CONSTRAINT small CHECK (m < 6) NOT VALID"],
        "mysql" => &[
            PICKY,
            "SET check_constraint_checks = 0; INSERT INTO picky VALUES (3, 2, 7); \
             SET check_constraint_checks = 1",
        ],
        _ => &[
            PICKY,
            "PRAGMA ignore_check_constraints = 1; INSERT INTO picky VALUES (3, 2, 7); \
             PRAGMA ignore_check_constraints = 0",
        ],
    };
    for sql in broken {
        DB::raw(&stage.pool, sql).await.unwrap();
    }
    let global = stage.begin().await;
    let error = stage.try_branch(&global, &["DELETE FROM par WHERE id = 2"]).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-ROW-BREAKS-CONSTRAINT", "{error}");
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM par").await.as_deref(), Some("3"));
}

async fn too_many_rows_along_are_refused<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(FAMILY).await;
    let rows = |numbers: std::ops::Range<u32>| {
        let rows: Vec<String> = numbers.map(|n| format!("({n}, 3, 1)")).collect();
        format!("INSERT INTO chi VALUES {}", rows.join(", "))
    };
    DB::raw(&stage.pool, &rows(100..5_099)).await.unwrap();
    let before = stage.value("SELECT COUNT(*) FROM chi").await;
    // One of `note` goes along too, and the limit is reached.
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM par WHERE id = 3"]).await;
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM chi").await, before);

    DB::raw(&stage.pool, &rows(9_000..9_001)).await.unwrap();
    refuse(&stage, "DELETE FROM par WHERE id = 3", "delete the rows that refer first").await;
    // The advice.
    let global = stage.begin().await;
    let advice = ["DELETE FROM chi WHERE pid = 3 AND id < 2500", "DELETE FROM par WHERE id = 3"];
    stage.branch(&global, &advice).await;
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM chi WHERE pid = 3").await.unwrap(), "5000");
}

async fn a_chain_of_too_many_keys_is_refused<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(TREE).await;
    let chain: Vec<String> = (100..140).map(|id| format!("({}, {id}, NULL)", id + 1)).collect();
    let chain = format!("INSERT INTO tree VALUES (100, NULL, NULL), {}", chain.join(", "));
    DB::raw(&stage.pool, &chain).await.unwrap();
    refuse(&stage, "DELETE FROM tree WHERE id = 100", "32 keys away").await;
    let advice = ["DELETE FROM tree WHERE id >= 130", "DELETE FROM tree WHERE id >= 115"];
    stage.check_undone("tree", &["id", "above"], &advice).await;
}

/// The advice of the refusal works.
async fn a_column_with_a_cascade_is_not_assigned<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, code INT UNIQUE)",
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, code INT, \
         FOREIGN KEY (code) REFERENCES par (code) ON UPDATE CASCADE)",
        "INSERT INTO par VALUES (1, 10)",
        "INSERT INTO chi VALUES (1, 10)",
    ])
    .await;
    refuse(&stage, "UPDATE par SET code = 11 WHERE id = 1", "point those rows to it").await;
    let advice = [
        "INSERT INTO par VALUES (2, 11)",
        "UPDATE chi SET code = 11 WHERE code = 10",
        "DELETE FROM par WHERE id = 1",
    ];
    stage.check_undone("chi", &["id", "code"], &advice).await;
}

async fn a_fresh_row_is_put_in<DB: TestDatabase>() {
    check_family::<DB>(&["REPLACE INTO par VALUES (9, 90)"]).await;
    check_family::<DB>(&["REPLACE INTO chi VALUES (9, 1, 90), (10, 2, 1)"]).await;
}

async fn a_replaced_row_takes_its_children_along<DB: TestDatabase>() {
    check_family::<DB>(&["REPLACE INTO par VALUES (1, 99)"]).await;
    check_family::<DB>(&["REPLACE INTO par VALUES (1, 10), (2, 99), (7, 1)"]).await;
    check_family::<DB>(&[
        "REPLACE INTO par VALUES (3, 1)",
        "REPLACE INTO par VALUES (1, 99)",
        "INSERT INTO chi VALUES (1, 1, 1)",
        "REPLACE INTO par VALUES (1, 98)",
    ])
    .await;
}

async fn a_unique_value_is_replaced<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, code INT UNIQUE)",
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, code INT, \
         FOREIGN KEY (code) REFERENCES par (code) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO par VALUES (1, 10), (2, 20), (3, 30)",
        "INSERT INTO chi VALUES (1, 10), (2, 20), (3, 30), (4, NULL)",
    ])
    .await;
    for statement in [
        "REPLACE INTO par VALUES (1, 11)",
        "REPLACE INTO par VALUES (4, 20)",
        "REPLACE INTO par VALUES (1, 30)",
    ] {
        let parents = stage.dump("par", &["id", "code"]).await;
        stage.check_undone("chi", &["id", "code"], &[statement]).await;
        assert_eq!(stage.dump("par", &["id", "code"]).await, parents, "{statement}");
    }
}

async fn a_row_of_a_tree_is_not_replaced<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE twig (id BIGINT NOT NULL PRIMARY KEY, above BIGINT, \
         FOREIGN KEY (above) REFERENCES twig (id) ON DELETE CASCADE)",
        "INSERT INTO twig VALUES (1, NULL), (2, 1), (3, 2), (4, 2), (6, 1)",
    ])
    .await;
    refuse(&stage, "REPLACE INTO twig VALUES (2, NULL)", "change the row by an UPDATE").await;
    let advice = [
        "REPLACE INTO twig VALUES (9, 1), (4, 3)",
        "UPDATE twig SET above = NULL WHERE id = 2",
        "DELETE FROM twig WHERE id = 6",
        "INSERT INTO twig VALUES (6, 2)",
    ];
    stage.check_undone("twig", &["id", "above"], &advice).await;
}

/// SQLite accepts a row that refers to none, and later rows refer to it unasked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_that_is_not_checked_is_refused() {
    let stage = Stage::<Sqlite>::new(TREE).await;
    refuse(&stage, "REPLACE INTO tree VALUES (9, NULL, 77)", "use ON CONFLICT DO UPDATE").await;
    let advice = "INSERT INTO tree VALUES (6, 1, 4), (9, 1, 4) ON CONFLICT (id) DO UPDATE \
         SET above = excluded.above, friend = excluded.friend";
    stage.check_undone("tree", &["id", "above", "friend"], &[advice]).await;
}

const CIRCLE: &[&str] = &[
    "CREATE TABLE team (id BIGINT NOT NULL PRIMARY KEY, boss BIGINT)",
    "CREATE TABLE player (id BIGINT NOT NULL PRIMARY KEY, team BIGINT, \
     FOREIGN KEY (team) REFERENCES team (id) ON DELETE CASCADE)",
    "INSERT INTO team VALUES (1, 1), (2, NULL)",
    "INSERT INTO player VALUES (1, 1), (2, 1), (3, 2)",
    "ALTER TABLE team ADD FOREIGN KEY (boss) REFERENCES player (id) ON DELETE SET NULL",
];

async fn check_circle<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(CIRCLE).await;
    refuse(&stage, "DELETE FROM team WHERE id = 1", "in a circle").await;
    let columns = ["id", "team"];
    stage.check_undone("player", &columns, &["DELETE FROM team WHERE id = 2"]).await;
    let advice = ["UPDATE team SET boss = NULL WHERE id = 1", "DELETE FROM team WHERE id = 1"];
    stage.check_undone("player", &columns, &advice).await;
    assert_eq!(stage.value("SELECT boss FROM team WHERE id = 1").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_is_refused_on_postgres() {
    check_circle::<Postgres>().await;
}

/// InnoDB deletes row by row: with row 1 the reference of row 10 goes, by which row 2 matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_on_rows_that_go_along_is_refused_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE par (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE chi (id INT PRIMARY KEY, pid INT, \
         FOREIGN KEY (pid) REFERENCES par (id) ON DELETE SET NULL)",
        "INSERT INTO par VALUES (1, 1), (2, 1), (3, 9)",
        "INSERT INTO chi VALUES (10, 1)",
    ])
    .await;
    let by_children = "DELETE FROM par WHERE EXISTS (SELECT 1 FROM chi WHERE chi.pid = par.n)";
    let global = stage.begin().await;
    let refused = stage.try_branch(&global, &[by_children]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-CASCADE");
    assert!(refused.to_string().contains("the condition reads"), "{refused}");
    stage.roll_back(global).await;
    // The advice, and a condition on rows that stay.
    for sql in [
        "DELETE FROM par WHERE id IN (1, 2)",
        "DELETE FROM par WHERE n IN (SELECT 9 FROM chi) AND id = 3",
    ] {
        stage.check_undone("par", &["id", "n"], &[sql]).await;
        assert_eq!(stage.value("SELECT pid FROM chi").await.as_deref(), Some("1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_is_refused_on_mysql() {
    check_circle::<MySql>().await;
    let stage = Stage::<MySql>::new(&[
        TREE[0],
        "INSERT INTO tree VALUES (1, NULL, NULL), (2, 1, NULL), (3, 2, NULL)",
        "UPDATE tree SET above = 3 WHERE id = 1",
    ])
    .await;
    refuse(&stage, "DELETE FROM tree WHERE id = 2", "in a circle").await;
}

/// SQLite checks foreign keys when everything is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_comes_back_on_sqlite() {
    let stage = Stage::<Sqlite>::new(&[
        "CREATE TABLE team (id BIGINT NOT NULL PRIMARY KEY, boss BIGINT \
         REFERENCES player (id) ON DELETE SET NULL)",
        CIRCLE[1],
        "INSERT INTO team VALUES (1, NULL), (2, NULL)",
        CIRCLE[3],
        "UPDATE team SET boss = 1 WHERE id = 1",
    ])
    .await;
    stage.check_undone("player", &["id", "team"], &["DELETE FROM team WHERE id = 1"]).await;
    assert_eq!(stage.value("SELECT boss FROM team WHERE id = 1").await.as_deref(), Some("1"));
}

async fn check_default<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        PAR,
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT DEFAULT 1, m INT, \
         FOREIGN KEY (pid) REFERENCES par (id) ON DELETE SET DEFAULT)",
        "INSERT INTO par VALUES (1, 1), (2, 2)",
        "INSERT INTO chi VALUES (1, 2, 5), (2, 1, 6)",
    ])
    .await;
    stage.check_undone("chi", &["id", "pid", "m"], &["DELETE FROM par WHERE id = 2"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_set_to_a_default_come_back() {
    check_default::<Postgres>().await;
    check_default::<Sqlite>().await;
}

/// InnoDB fires no trigger for rows that go along; the other databases do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_trigger_of_a_child_counts_where_it_fires() {
    let stage = Stage::<MySql>::new(FAMILY).await;
    let trigger = "CREATE TABLE audit (n INT); CREATE TRIGGER chi_gone AFTER DELETE ON chi \
         FOR EACH ROW INSERT INTO audit VALUES (1)";
    MySql::raw(&stage.pool, trigger).await.unwrap();
    stage.check_undone("chi", &["id", "pid", "m"], &["DELETE FROM par WHERE id = 1"]).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM audit").await.as_deref(), Some("0"));

    let stage = Stage::<Sqlite>::new(FAMILY).await;
    let trigger = "CREATE TABLE audit (n INT); CREATE TRIGGER chi_gone AFTER DELETE ON chi \
         BEGIN INSERT INTO audit VALUES (1); END";
    Sqlite::raw(&stage.pool, trigger).await.unwrap();
    refuse(&stage, "DELETE FROM par WHERE id = 1", "trigger chi_gone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_go_along_with_rows_chosen_by_a_join() {
    check_family::<Postgres>(&["DELETE FROM par USING chi WHERE chi.pid = par.id AND par.n < 15"])
        .await;
    check_family::<Postgres>(&[
        "INSERT INTO chi VALUES (5, 2, 1)",
        "DELETE FROM par p USING (SELECT par.id FROM par LEFT JOIN chi ON chi.pid = par.id \
         WHERE chi.m > 0 OR chi.id IS NULL) AS found WHERE p.id = found.id",
        "DELETE FROM chi USING gra WHERE gra.cid = chi.id RETURNING chi.m, gra.t",
    ])
    .await;
    check_family::<MySql>(&["DELETE p FROM par p JOIN chi c ON c.pid = p.id WHERE p.n < 15"]).await;
    check_family::<MySql>(&[
        "DELETE FROM p USING par p LEFT JOIN chi c ON c.pid = p.id WHERE c.id IS NULL",
        "DELETE chi FROM chi JOIN gra ON gra.cid = chi.id",
    ])
    .await;
    let stage = Stage::<MySql>::new(FAMILY).await;
    let both = "DELETE par, gra FROM par JOIN gra ON gra.cid = par.id";
    refuse(&stage, both, "write one DELETE a table").await;
}

/// The user's RETURNING shows the statement's own rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_along_returns_its_own_rows() {
    let stage = Stage::<Postgres>::new(FAMILY).await;
    let global = stage.begin().await;
    let mut local = global.scope(stage.resource.begin()).await.unwrap();
    let sql = "DELETE FROM par WHERE id = 1 RETURNING CAST(n AS text)";
    let rows = Postgres::read(&mut local, sql).await.unwrap();
    assert_eq!(rows, [[Some("10".to_owned())]]);
    local.rollback().await.unwrap();
    stage.roll_back(global).await;
}
