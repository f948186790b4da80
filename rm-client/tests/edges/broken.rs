//! Rows that break a constraint of their table, as is possible if the constraint was created NOT
//! VALID or its checks were off: a change of such a row could not be undone.

use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase, code, on_every_database};

on_every_database!(
    a_row_that_breaks_a_check_is_not_changed,
    a_row_that_refers_to_nothing_is_not_changed,
    rows_beside_a_broken_one_are_undone,
    a_constraint_on_unchanged_columns_is_ignored,
);

const COLUMNS: &[&str] = &["id", "v", "p", "w"];

/// Rows 1 (which breaks the check on `v`), 2 (whose `p` refers to nothing) and 3.
async fn broken<DB: TestDatabase>() -> Stage<DB> {
    let (check, refers) = ("CHECK (v > 0)", "FOREIGN KEY (p) REFERENCES parent (id)");
    let rows = "INSERT INTO item VALUES (1, -5, 1, 0), (2, 1, 77, 0), (3, 1, 1, 0)";
    let table =
        "CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, v INTEGER, p INTEGER, w INTEGER";
    let setup = match DB::NAME_IN_TESTS {
        "postgres" => vec![
            format!("{table})"),
            rows.to_owned(),
            format!("ALTER TABLE item ADD CONSTRAINT positive {check} NOT VALID"),
            format!("ALTER TABLE item ADD CONSTRAINT of_parent {refers} NOT VALID"),
        ],
        "mysql" => vec![
            format!("{table}, CONSTRAINT positive {check}, CONSTRAINT of_parent {refers})"),
            format!(
                "SET check_constraint_checks = 0, foreign_key_checks = 0; {rows}; \
                 SET check_constraint_checks = 1, foreign_key_checks = 1"
            ),
        ],
        _ => vec![
            format!("{table}, CONSTRAINT positive CHECK (item.v > 0), {refers})"),
            format!(
                "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; {rows}; \
                 PRAGMA ignore_check_constraints = 0; PRAGMA foreign_keys = 1"
            ),
        ],
    };
    // A parent has the names of its child's columns.
    let parents = [
        "CREATE TABLE parent (id INTEGER NOT NULL PRIMARY KEY, p INTEGER)",
        "INSERT INTO parent VALUES (1, 77), (2, 78)",
    ];
    let setup = setup.iter().map(String::as_str);
    Stage::<DB>::new(&parents.into_iter().chain(setup).collect::<Vec<_>>()).await
}

/// Checks that a statement is refused before it changes anything, and that the branch can go on.
async fn refuse<DB: TestDatabase>(stage: &Stage<DB>, sql: &str, constraint: &str) {
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    let branch = async {
        let mut local = stage.resource.begin().await?;
        let refused = DB::run(&mut local, sql).await;
        DB::run(&mut local, "UPDATE item SET w = 8 WHERE id = 3").await?;
        local.commit().await?;
        Ok::<_, sqlx::Error>(refused)
    };
    let written = global.scope(branch).await.unwrap();
    let between = stage.dump("item", COLUMNS).await;
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before, "{sql}");
    let refused = written.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-ROW-BREAKS-CONSTRAINT", "{sql}");
    assert_eq!(between[..2], before[..2], "{sql} changes nothing");
    let text = refused.to_string();
    assert!(text.contains(constraint), "{sql}: {text}");
}

fn upsert<DB: TestDatabase>(id: u32) -> String {
    match DB::NAME_IN_TESTS {
        "mysql" => {
            format!("INSERT INTO item VALUES ({id}, 2, 2, 2) ON DUPLICATE KEY UPDATE v = 9, p = 1")
        }
        _ => format!(
            "INSERT INTO item VALUES ({id}, 2, 2, 2) ON CONFLICT (id) DO UPDATE SET v = 9, p = 1"
        ),
    }
}

/// Repairing or removing such rows is usual after NOT VALID. The rollback needed an operator, and
/// reported rows of other transactions although there were none.
async fn a_row_that_breaks_a_check_is_not_changed<DB: TestDatabase>() {
    let stage = broken::<DB>().await;
    for sql in [
        "UPDATE item SET v = 1 WHERE id = 1",
        "UPDATE item AS i SET v = 1 WHERE i.v < 0",
        "UPDATE item SET v = 1 WHERE id IN (SELECT id FROM parent WHERE id = 1)",
        "DELETE FROM item WHERE id = 1",
        "DELETE FROM item WHERE id IN (SELECT id FROM parent WHERE id = 1)",
        &upsert::<DB>(1),
    ] {
        refuse(&stage, sql, "positive").await;
    }
}

async fn a_row_that_refers_to_nothing_is_not_changed<DB: TestDatabase>() {
    let stage = broken::<DB>().await;
    let constraint = if DB::NAME_IN_TESTS == "sqlite" { "parent" } else { "of_parent" };
    for sql in [
        "UPDATE item SET p = 1 WHERE id = 2",
        "UPDATE item AS i SET p = NULL WHERE i.p = 77",
        "DELETE FROM item WHERE id = 2",
        &upsert::<DB>(2),
    ] {
        refuse(&stage, sql, constraint).await;
    }
}

async fn rows_beside_a_broken_one_are_undone<DB: TestDatabase>() {
    let stage = broken::<DB>().await;
    for sql in [
        "UPDATE item SET v = 7, p = 2 WHERE id = 3",
        "UPDATE item SET v = NULL, p = NULL WHERE id IN (SELECT 3)",
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO item VALUES (4, 1, 1, 1)",
        &upsert::<DB>(3),
        &upsert::<DB>(4),
    ] {
        stage.check_undone("item", COLUMNS, &[sql]).await;
    }
}

/// A change of other columns is undone by a change of the same columns.
async fn a_constraint_on_unchanged_columns_is_ignored<DB: TestDatabase>() {
    let stage = broken::<DB>().await;
    stage.check_undone("item", COLUMNS, &["UPDATE item SET w = 5 WHERE id = 2"]).await;
}

/// The application's RETURNING is answered even if the image is read before the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_is_answered_beside_the_image() {
    returned::<Postgres>().await;
    returned::<Sqlite>().await;
}

async fn returned<DB: TestDatabase>() {
    let stage = broken::<DB>().await;
    let before = stage.dump("item", COLUMNS).await;
    let global = stage.begin().await;
    let branch = async {
        let mut local = stage.resource.begin().await?;
        let rows = DB::read(&mut local, "DELETE FROM item WHERE id = 3 RETURNING 'gone'").await?;
        local.commit().await?;
        Ok::<_, sqlx::Error>(rows)
    };
    let rows = global.scope(branch).await.unwrap();
    assert_eq!((rows.len(), rows[0][0].as_deref()), (1, Some("gone")));
    stage.roll_back(global).await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// A session without strict mode leaves an empty geometry, which no session can write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_geometry_is_not_changed() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE plot (id INT PRIMARY KEY, area POLYGON NOT NULL, v INT)",
        "INSERT IGNORE INTO plot (id, v) VALUES (1, 1)",
        "INSERT INTO plot VALUES (2, ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))'), 1)",
    ])
    .await;
    let columns = &["id", "HEX(area)", "v"];
    let moved = "UPDATE plot SET area = ST_GeomFromText('POLYGON((0 0, 2 0, 2 2, 0 0))')";
    let global = stage.begin().await;
    for sql in ["DELETE FROM plot", moved] {
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROW-BREAKS-CONSTRAINT", "{sql}");
        assert!(refused.to_string().contains("area polygon"), "{refused}");
    }
    stage.roll_back(global).await;
    let moved = format!("{moved} WHERE id = 2");
    let upserted = "INSERT IGNORE INTO plot (id, v) VALUES (7, 1)";
    for sql in ["UPDATE plot SET v = 2", &moved, "DELETE FROM plot WHERE id = 2", upserted] {
        stage.check_undone("plot", columns, &[sql]).await;
    }
}

/// A constraint of one partition does not concern the rows of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_of_a_partition_counts_for_its_rows() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE part (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF part FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF part FOR VALUES FROM (10) TO (20)",
        "INSERT INTO part VALUES (1, -1), (11, -1)",
        "ALTER TABLE high ADD CONSTRAINT positive CHECK (v > 0) NOT VALID",
    ])
    .await;
    let global = stage.begin().await;
    for sql in ["UPDATE part SET v = 5 WHERE id = 11", "DELETE FROM high"] {
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-ROW-BREAKS-CONSTRAINT", "{sql}");
    }
    stage.roll_back(global).await;
    stage.check_undone("part", &["id", "v"], &["UPDATE part SET v = 5 WHERE id = 1"]).await;
    stage.check_undone("part", &["id", "v"], &["DELETE FROM part WHERE id = 1"]).await;
}

/// The snapshot of the branch is older than the parent, so a read without locks does not find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_younger_than_the_snapshot_is_a_parent() {
    let stage = broken::<MySql>().await;
    let global = stage.begin().await;
    let branch = async {
        let mut local = stage.resource.begin().await?;
        MySql::read(&mut local, "SELECT COUNT(*) FROM parent").await?;
        for sql in ["INSERT INTO parent VALUES (9, 9)", "INSERT INTO item VALUES (9, 1, 9, 0)"] {
            MySql::raw(&stage.pool, sql).await?;
        }
        MySql::run(&mut local, "DELETE FROM item WHERE id = 9").await?;
        local.commit().await
    };
    global.scope(branch).await.unwrap();
    stage.roll_back(global).await;
    let back = stage.value("SELECT p FROM item WHERE id = 9").await;
    assert_eq!(back.as_deref(), Some("9"));
}

/// If the pool's sessions have no checks, neither has the undo, so it always succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_checks_refuse_no_statement() {
    let mut stage = broken::<Sqlite>().await;
    let options = stage.pool.connect_options().as_ref().clone().foreign_keys(false);
    let options = options.pragma("ignore_check_constraints", "1");
    let pool = sqlx::sqlite::SqlitePoolOptions::new().connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    stage.check_undone("item", COLUMNS, &["DELETE FROM item"]).await;
    stage.check_undone("item", COLUMNS, &["UPDATE item SET v = 1, p = 1"]).await;
}

/// Writing a row needs no privilege to read the row that it refers to, and neither does its undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_parent_is_not_read() {
    let mut stage = broken::<MySql>().await;
    let user = format!("crud_{}", &uuid::Uuid::new_v4().simple().to_string()[..20]);
    let create = format!("CREATE USER '{user}' IDENTIFIED BY 'crud'");
    MySql::raw(&stage.pool, &create).await.unwrap();
    for table in MySql::raw_rows(&stage.pool, "SHOW TABLES").await.unwrap() {
        let table = table[0].as_deref().unwrap();
        if table != "parent" {
            let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO '{user}'");
            MySql::raw(&stage.pool, &grant).await.unwrap();
        }
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&user).password("crud");
    let pool = sqlx::mysql::MySqlPoolOptions::new().connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    refuse(&stage, "DELETE FROM item WHERE id = 1", "positive").await;
    for sql in ["UPDATE item SET p = 2 WHERE id = 3", "DELETE FROM item WHERE id = 3"] {
        stage.check_undone("item", COLUMNS, &[sql]).await;
    }
}

const TREE: &[&str] = &[
    "CREATE TABLE tree (id INT AUTO_INCREMENT PRIMARY KEY, above INT, v INT, \
     FOREIGN KEY (above) REFERENCES tree (id))",
    "INSERT INTO tree VALUES (1, NULL, 0)",
];

/// InnoDB does not delete such a row, so the rollback needed an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_refers_to_itself_is_not_inserted() {
    let stage = Stage::<MySql>::new(TREE).await;
    let columns = ["id", "above", "v"];
    let before = stage.dump("tree", &columns).await;
    for sql in [
        "INSERT INTO tree VALUES (13, 13, 0)",
        "INSERT INTO tree VALUES (14, 1, 0), (15, 15, 0)",
        "INSERT INTO tree VALUES (13, 13, 0) ON DUPLICATE KEY UPDATE v = 1",
        "INSERT IGNORE INTO tree VALUES (13, 13, 0)",
    ] {
        let global = stage.begin().await;
        let refused = stage.try_branch(&global, &[sql]).await;
        stage.roll_back(global).await;
        assert_eq!(stage.dump("tree", &columns).await, before, "{sql}");
        assert_eq!(code(&refused.unwrap_err()), "HF-AT-ROW-REFERS-TO-ITSELF", "{sql}");
    }
    // The statements that the refusal recommends instead.
    let statements = [
        "INSERT INTO tree VALUES (13, NULL, 0), (14, 13, 0)",
        "UPDATE tree SET above = 13 WHERE id = 13",
    ];
    stage.check_undone("tree", &columns, &statements).await;
}
