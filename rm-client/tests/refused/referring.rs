//! The undo of an INSERT deletes the row. Through a foreign key with CASCADE or SET NULL this
//! changed rows that other transactions had committed meanwhile, and the rollback reported success.

use std::time::Duration;

use handfast::{GlobalStatus, Xid};
use handfast_core::{BranchId, Command, OperatorAction, Resolution, RowStanding};
use sqlx::{MySql, Postgres};

use super::{number, refusal, retry};
use crate::at::{Stage, TestDatabase, on_every_database};

on_every_database!(
    a_row_of_another_global_is_kept,
    a_row_written_outside_globals_is_kept,
    rows_of_the_same_global_are_deleted,
    rows_that_refer_to_each_other_are_deleted,
    a_foreign_row_in_the_same_table_is_kept,
    a_reference_to_a_unique_key_of_two_columns_counts,
    references_from_a_second_table_count,
    an_upserted_row_is_kept_too,
    the_rollback_ends_once_the_row_is_gone,
    force_before_deletes_the_referring_row,
);

const PAR: &str = "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, n INT)";
const INSERT: &str = "INSERT INTO par VALUES (12, 1)";
const COLUMNS: &[&str] = &["id", "pid", "m"];

fn child(action: &str) -> String {
    format!(
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, m INT, \
         CONSTRAINT chi_par FOREIGN KEY (pid) REFERENCES par (id) ON DELETE {action})"
    )
}

/// Parents and children with a foreign key that has an action.
async fn family<DB: TestDatabase>(action: &str) -> Stage<DB> {
    Stage::new(&[PAR, "INSERT INTO par VALUES (1, 1)", &child(action)]).await
}

async fn a_row_of_another_global_is_kept<DB: TestDatabase>() {
    for action in ["CASCADE", "SET NULL"] {
        let stage = family::<DB>(action).await;
        let global = stage.begin().await;
        stage.branch(&global, &[INSERT, "INSERT INTO par VALUES (13, 1)"]).await;
        let other = stage.begin().await;
        // Otherwise this would wait for the first global.
        let unlocked = stage.handfast.at(stage.pool.clone()).unlocked_parent("par").await.unwrap();
        let insert = "INSERT INTO chi VALUES (200, 12, 7)";
        other.scope(DB::run_alone(&unlocked, insert)).await.unwrap();
        stage.commit(other).await;
        let before = stage.dump("chi", COLUMNS).await;

        let (error, rows) = refusal(&stage, global).await;
        assert!(error.starts_with("dirty write: 1 of 1 rows of "), "{error}");
        assert!(error.contains("chi (200) refers to them by foreign key"), "{error}");
        let [child, parent, clean] = rows.as_slice() else { unreachable!("{rows:?}") };
        assert!(child.table.ends_with(".chi") && parent.table.ends_with(".par"), "{rows:?}");
        assert_eq!([&child.key, &parent.key, &clean.key], ["200", "12", "13"]);
        assert_eq!([parent.standing, clean.standing], [RowStanding::Dirty, RowStanding::Clean]);
        let [column] = child.columns.as_slice() else { unreachable!("{child:?}") };
        assert_eq!((&*column.name, column.current.as_deref()), ("pid", Some("12")));
        assert_eq!(stage.dump("chi", COLUMNS).await, before, "{action}");
        assert_eq!(stage.value("SELECT COUNT(*) FROM par").await.as_deref(), Some("3"));
        assert_eq!(stage.undo_rows().await, 1);
    }
}

async fn a_row_written_outside_globals_is_kept<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let global = stage.begin().await;
    stage.branch(&global, &[INSERT]).await;
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (200, 12, 7)").await.unwrap();
    refusal(&stage, global).await;
    assert_eq!(stage.dump("chi", COLUMNS).await.len(), 1);
}

async fn rows_of_the_same_global_are_deleted<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let global = stage.begin().await;
    stage.branch(&global, &[INSERT, "INSERT INTO chi VALUES (199, 12, 7)"]).await;
    stage.branch(&global, &["INSERT INTO chi VALUES (200, 12, 7)"]).await;
    // These rows refer to another row, or to none.
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (1, 1, 7), (2, NULL, 7)").await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.dump("chi", COLUMNS).await.len(), 2);
    assert_eq!(stage.value("SELECT COUNT(*) FROM par").await.as_deref(), Some("1"));
}

const TREE: &str = "CREATE TABLE tree (id BIGINT NOT NULL PRIMARY KEY, above BIGINT, \
     FOREIGN KEY (above) REFERENCES tree (id) ON DELETE CASCADE)";

async fn rows_that_refer_to_each_other_are_deleted<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[TREE]).await;
    let global = stage.begin().await;
    let rows = "INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 4)";
    stage.branch(&global, &[rows]).await;
    stage.roll_back(global).await;
    assert!(stage.dump("tree", &["id"]).await.is_empty());
}

async fn a_foreign_row_in_the_same_table_is_kept<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[TREE]).await;
    let global = stage.begin().await;
    stage.branch(&global, &["INSERT INTO tree VALUES (1, NULL), (2, 1), (9, 9)"]).await;
    DB::raw(&stage.pool, "INSERT INTO tree VALUES (3, 2)").await.unwrap();
    let (error, rows) = refusal(&stage, global).await;
    assert!(error.contains("tree (3) refers"), "{error}");
    // The referenced row stays, and so does the row that it refers to.
    assert!(error.contains("tree (2) refers"), "{error}");
    let shown: Vec<_> = rows[1..].iter().map(|row| (&*row.key, row.standing)).collect();
    assert_eq!(rows[0].key, "3");
    use RowStanding::{Clean, Dirty};
    assert_eq!(shown, [("1", Dirty), ("2", Dirty), ("9", Clean)]);
    assert_eq!(stage.dump("tree", &["id"]).await.len(), 4);
}

async fn a_reference_to_a_unique_key_of_two_columns_counts<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, a INT, b VARCHAR(20), UNIQUE (a, b))",
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, y VARCHAR(20), x INT, \
         FOREIGN KEY (x, y) REFERENCES par (a, b) ON DELETE SET NULL)",
    ])
    .await;
    let global = stage.begin().await;
    stage.branch(&global, &["INSERT INTO par VALUES (1, 5, 'b'), (2, NULL, 'b')"]).await;
    // A key with a NULL does not refer to any row.
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (1, 'b', NULL), (2, NULL, 5)").await.unwrap();
    stage.roll_back(global).await;

    let global = stage.begin().await;
    stage.branch(&global, &["INSERT INTO par VALUES (1, 5, 'b'), (2, 6, 'b')"]).await;
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (3, 'b', 6)").await.unwrap();
    let (error, rows) = refusal(&stage, global).await;
    assert!(error.contains("1 of 2 rows") && error.contains("chi (3)"), "{error}");
    assert_eq!(rows.last().unwrap().key, "2");
    assert_eq!(stage.value("SELECT x FROM chi WHERE id = 3").await.as_deref(), Some("6"));
}

async fn references_from_a_second_table_count<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let second = child("SET NULL").replace("chi", "second");
    DB::raw(&stage.pool, &second).await.unwrap();
    let global = stage.begin().await;
    stage.branch(&global, &[INSERT]).await;
    DB::raw(&stage.pool, "INSERT INTO second VALUES (200, 12, 7)").await.unwrap();
    let (error, _) = refusal(&stage, global).await;
    assert!(error.contains("second (200)"), "{error}");
}

async fn an_upserted_row_is_kept_too<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let clause = match DB::NAME_IN_TESTS {
        "mysql" => "ON DUPLICATE KEY UPDATE n = 2",
        _ => "ON CONFLICT (id) DO UPDATE SET n = 2",
    };
    let global = stage.begin().await;
    stage.branch(&global, &[&format!("INSERT INTO par VALUES (1, 1), (12, 1) {clause}")]).await;
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (200, 12, 7)").await.unwrap();
    refusal(&stage, global).await;
    assert_eq!(stage.dump("chi", COLUMNS).await.len(), 1);
}

async fn the_rollback_ends_once_the_row_is_gone<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &[INSERT]).await;
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (200, 12, 7)").await.unwrap();
    refusal(&stage, global).await;
    DB::raw(&stage.pool, "DELETE FROM chi").await.unwrap();
    retry(&stage, &xid).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM par").await.as_deref(), Some("1"));
}

async fn force_before_deletes_the_referring_row<DB: TestDatabase>() {
    let stage = family::<DB>("CASCADE").await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &[INSERT]).await;
    DB::raw(&stage.pool, "INSERT INTO chi VALUES (200, 12, 7)").await.unwrap();
    refusal(&stage, global).await;
    resolve(&stage, &xid, Resolution::ForceBefore).await;
    assert!(stage.dump("chi", COLUMNS).await.is_empty());
}

async fn resolve<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid, resolution: Resolution) {
    let global = number(xid);
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(global)).await;
    let branch: BranchId = view.unwrap().unwrap().branches[0].id;
    let action = OperatorAction::Resolve { branch, resolution };
    let command = Command::Operate { xid: global, action, operator: "tester".into() };
    stage.tc.engine().call(command).await.unwrap();
    stage.await_status(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
}

/// Counts the sessions that wait for a lock in the stage's database.
const WAITERS_POSTGRES: &str = "SELECT COUNT(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND wait_event_type = 'Lock'";
const WAITERS_MYSQL: &str = "SELECT COUNT(*) FROM information_schema.innodb_trx t \
     JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
     WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'";

/// A child row that is not committed is invisible. The rollback has to wait for it, not to ignore
/// it.
async fn an_open_child_is_waited_for<DB: TestDatabase>(
    stage: &Stage<DB>,
    parent: &str,
    insert_child: sqlx::Transaction<'static, DB>,
    waiters: &str,
) where
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let global = stage.begin().await;
    let mut open = insert_child;
    stage.branch(&global, &[parent]).await;
    sqlx::Executor::execute(&mut *open, "INSERT INTO chi VALUES (200, 12, 7)").await.unwrap();
    let committed = async {
        // InnoDB refreshes its table of transactions only if it was not read for 0.1 s, so this
        // cannot poll faster.
        let mut looks = tokio::time::interval(Duration::from_millis(300));
        while stage.value(waiters).await.as_deref() == Some("0") {
            looks.tick().await;
        }
        open.commit().await.unwrap();
    };
    let ((error, _), ()) = tokio::join!(refusal(stage, global), committed);
    assert!(error.contains("chi (200)"), "{error}");
    assert_eq!(stage.dump("chi", COLUMNS).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_child_is_waited_for_on_postgres() {
    let stage = family::<Postgres>("CASCADE").await;
    let open = stage.pool.begin().await.unwrap();
    an_open_child_is_waited_for(&stage, INSERT, open, WAITERS_POSTGRES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_child_is_waited_for_on_mysql() {
    let stage = family::<MySql>("CASCADE").await;
    let open = stage.pool.begin().await.unwrap();
    an_open_child_is_waited_for(&stage, INSERT, open, WAITERS_MYSQL).await;
}

/// InnoDB checks this foreign key in the unique index, whose entry a lock on the row does not
/// cover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_child_by_a_unique_key_is_waited_for_on_mysql() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE par (id BIGINT NOT NULL PRIMARY KEY, code BIGINT, UNIQUE (code))",
        "CREATE TABLE chi (id BIGINT NOT NULL PRIMARY KEY, pid BIGINT, m INT, \
         FOREIGN KEY (pid) REFERENCES par (code) ON DELETE CASCADE)",
    ])
    .await;
    let open = stage.pool.begin().await.unwrap();
    let parent = "INSERT INTO par VALUES (1, 12)";
    an_open_child_is_waited_for(&stage, parent, open, WAITERS_MYSQL).await;
}
