//! Rollbacks that find dirty rows, guard rows that keep late branches out, and repeated rollbacks.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use at::{Stage, TestDatabase, TextRow, code, on_every_database};
use handfast::{GlobalStatus, Xid};
use handfast_core::{
    BranchId, BranchRecord, BranchState, Command, DirtyRow, Holding, LockWait, Mode, NewBranch,
    OperatorAction, Resolution,
};
use sqlx::Postgres;

const PERSON: &[&str] = &[
    "CREATE TABLE person (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(64) UNIQUE, age INT)",
    "INSERT INTO person VALUES (100, 'Jack', 20), (101, 'Ann', 30)",
];
const COLUMNS: &[&str] = &["id", "name", "age"];

on_every_database!(
    a_dirty_row_stops_the_rollback,
    accept_current_leaves_the_rows,
    force_before_overwrites_dirty_rows,
    changes_of_unwritten_columns_are_not_dirty,
    a_row_that_equals_its_before_image_is_left,
    deleted_and_inserted_rows_can_be_dirty,
    a_conflicting_unique_row_needs_an_operator,
    a_parent_deleted_since_needs_an_operator,
    a_before_image_that_breaks_a_check_needs_an_operator,
    a_late_branch_is_refused,
    a_guard_row_keeps_a_late_undo_row_out,
    branches_are_undone_in_reverse,
);

/// Makes a global whose rollback finds one of two rows dirty.
async fn dirty<DB: TestDatabase>(stage: &Stage<DB>) -> Xid {
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let statements =
        ["UPDATE person SET age = 1 WHERE id = 100", "UPDATE person SET age = 2 WHERE id = 101"];
    stage.branch(&global, &statements).await;
    DB::raw(&stage.pool, "UPDATE person SET age = 99 WHERE id = 100").await.unwrap();
    await_refusal(stage, global).await;
    xid
}

/// Rolls a global back and waits until it needs an operator.
async fn await_refusal<DB: TestDatabase>(stage: &Stage<DB>, global: handfast::Global) {
    let xid = global.xid().clone();
    // The rollback returns an error, since it needs an operator. That is expected here.
    let _ = global.rollback("test").await;
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
}

fn number(xid: &Xid) -> handfast_core::Xid {
    let (_, number) = xid.as_str().rsplit_once(':').unwrap();
    handfast_core::Xid(number.parse().unwrap())
}

async fn branches<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid) -> Vec<BranchRecord> {
    let xid = number(xid);
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(xid)).await.unwrap();
    view.unwrap().branches
}

async fn refusal<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid) -> (String, Vec<DirtyRow>) {
    let branch = branches(stage, xid).await.remove(0);
    let BranchState::Refused(error, rows) = branch.state else { unreachable!("{branch:?}") };
    (error.to_string(), rows.listed.clone())
}

async fn resolve<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid, resolution: Resolution) {
    let branch = branches(stage, xid).await.remove(0).id;
    let action = OperatorAction::Resolve { branch, resolution };
    let command = Command::Operate { xid: number(xid), action, operator: "tester".into() };
    stage.tc.engine().call(command).await.unwrap();
    stage.await_status(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
}

fn row(id: &str, name: &str, age: &str) -> TextRow {
    [id, name, age].map(|text| Some(text.to_owned())).to_vec()
}

async fn a_dirty_row_stops_the_rollback<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let xid = dirty(&stage).await;
    let (error, rows) = refusal(&stage, &xid).await;
    assert!(error.contains("dirty write: 1 of 1 rows"), "{error}");
    let [dirty, _clean] = rows.as_slice() else { unreachable!("{rows:?}") };
    assert_eq!(dirty.key, "100");
    let [column] = dirty.columns.as_slice() else { unreachable!("{dirty:?}") };
    let shown = [&column.before, &column.after, &column.current].map(|text| text.as_deref());
    assert_eq!((column.name.as_str(), shown), ("age", [Some("20"), Some("1"), Some("99")]));
    // No row was changed, not even the clean one, and the undo log is still there.
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jack", "99"), row("101", "Ann", "2")]);
    assert_eq!(stage.undo_rows().await, 1);
}

async fn accept_current_leaves_the_rows<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let xid = dirty(&stage).await;
    resolve(&stage, &xid, Resolution::AcceptCurrent).await;
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jack", "99"), row("101", "Ann", "2")]);
    assert_eq!(stage.undo_rows().await, 0);
}

async fn force_before_overwrites_dirty_rows<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let xid = dirty(&stage).await;
    resolve(&stage, &xid, Resolution::ForceBefore).await;
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jack", "20"), row("101", "Ann", "30")]);
    assert_eq!(stage.undo_rows().await, 0);
}

async fn changes_of_unwritten_columns_are_not_dirty<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE person SET age = 1 WHERE id = 100"]).await;
    DB::raw(&stage.pool, "UPDATE person SET name = 'Jim' WHERE id = 100").await.unwrap();
    stage.roll_back(global).await;
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jim", "20"), row("101", "Ann", "30")]);
}

async fn a_row_that_equals_its_before_image_is_left<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    let statements = [
        "UPDATE person SET age = 1 WHERE id = 100",
        "DELETE FROM person WHERE id = 101",
        "INSERT INTO person VALUES (102, 'Tom', 5)",
    ];
    stage.branch(&global, &statements).await;
    for sql in [
        "UPDATE person SET age = 20 WHERE id = 100",
        "INSERT INTO person VALUES (101, 'Ann', 30)",
        "DELETE FROM person WHERE id = 102",
    ] {
        DB::raw(&stage.pool, sql).await.unwrap();
    }
    stage.roll_back(global).await;
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jack", "20"), row("101", "Ann", "30")]);
}

async fn deleted_and_inserted_rows_can_be_dirty<DB: TestDatabase>() {
    for (statement, foreign) in [
        ("DELETE FROM person WHERE id = 101", "INSERT INTO person VALUES (101, 'Bob', 30)"),
        ("INSERT INTO person VALUES (102, 'Tom', 5)", "UPDATE person SET age = 6 WHERE id = 102"),
        ("UPDATE person SET age = 1 WHERE id = 100", "DELETE FROM person WHERE id = 100"),
    ] {
        let stage = Stage::<DB>::new(PERSON).await;
        let before = stage.dump("person", COLUMNS).await;
        let global = stage.begin().await;
        let xid = global.xid().clone();
        stage.branch(&global, &[statement]).await;
        DB::raw(&stage.pool, foreign).await.unwrap();
        await_refusal(&stage, global).await;
        resolve(&stage, &xid, Resolution::ForceBefore).await;
        let after = stage.dump("person", COLUMNS).await;
        // An updated row that was deleted since cannot be restored: the image does not hold all of
        // its columns.
        let expected = if foreign.starts_with("DELETE") { before[1..].to_vec() } else { before };
        assert_eq!(after, expected, "{statement}");
    }
}

async fn a_conflicting_unique_row_needs_an_operator<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["DELETE FROM person WHERE id = 100"]).await;
    DB::raw(&stage.pool, "INSERT INTO person VALUES (7, 'Jack', 1)").await.unwrap();
    await_refusal(&stage, global).await;
    let (error, _) = refusal(&stage, &xid).await;
    assert!(error.contains("in the way"), "{error}");
}

async fn a_parent_deleted_since_needs_an_operator<DB: TestDatabase>() {
    let child = "CREATE TABLE child (id BIGINT PRIMARY KEY, parent BIGINT, \
                 FOREIGN KEY (parent) REFERENCES person (id))";
    let setup = [PERSON, &[child, "INSERT INTO child VALUES (1, 100)"]].concat();
    let stage = Stage::<DB>::new(&setup).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["DELETE FROM child WHERE id = 1"]).await;
    DB::raw(&stage.pool, "DELETE FROM person WHERE id = 100").await.unwrap();
    await_refusal(&stage, global).await;
    let (error, _) = refusal(&stage, &xid).await;
    assert!(error.contains("a row that those refer to is not there"), "{error}");
    assert_eq!(stage.value("SELECT COUNT(*) FROM child").await.as_deref(), Some("0"));
}

/// The before image breaks a check together with the values that another transaction has given to
/// the other columns.
async fn a_before_image_that_breaks_a_check_needs_an_operator<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE stock (id BIGINT PRIMARY KEY, held INT, units INT, CHECK (held <= units))",
        "INSERT INTO stock VALUES (1, 5, 5)",
    ])
    .await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["UPDATE stock SET held = 0 WHERE id = 1"]).await;
    DB::raw(&stage.pool, "UPDATE stock SET units = 3 WHERE id = 1").await.unwrap();
    await_refusal(&stage, global).await;
    let (error, _) = refusal(&stage, &xid).await;
    assert!(error.contains("would break a constraint"), "{error}");
    assert_eq!(stage.value("SELECT held FROM stock").await.as_deref(), Some("0"));
}

/// It was taken for a temporary failure: the rollback was tried again without end, the locks were
/// kept, and no operator was called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluding_row_needs_an_operator() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE TABLE booking (id INT PRIMARY KEY, during INT4RANGE, \
         EXCLUDE USING gist (during WITH &&))",
        "INSERT INTO booking VALUES (1, '[1,5)')",
    ])
    .await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["DELETE FROM booking WHERE id = 1"]).await;
    Postgres::raw(&stage.pool, "INSERT INTO booking VALUES (2, '[2,3)')").await.unwrap();
    await_refusal(&stage, global).await;
    let (error, _) = refusal(&stage, &xid).await;
    assert!(error.contains("in the way"), "{error}");
}

/// PostgreSQL 18 gives this error for a foreign key with RESTRICT. Here a trigger raises it, on any
/// version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restricting_row_needs_an_operator() {
    let stage = Stage::<Postgres>::new(PERSON).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    stage.branch(&global, &["INSERT INTO person VALUES (102, 'Tom', 5)"]).await;
    for sql in [
        "CREATE FUNCTION restrict() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'restricted' USING ERRCODE = 'restrict_violation'; END $$",
        "CREATE TRIGGER restricts BEFORE DELETE ON person \
         FOR EACH ROW EXECUTE FUNCTION restrict()",
    ] {
        Postgres::raw(&stage.pool, sql).await.unwrap();
    }
    await_refusal(&stage, global).await;
    let (error, _) = refusal(&stage, &xid).await;
    assert!(error.contains("in the way"), "{error}");
}

async fn a_late_branch_is_refused<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    // The coordinator rolls the branch back before its local transaction commits, as it would a
    // branch that was registered and never reported.
    let mut local = global.scope(stage.resource.begin()).await.unwrap();
    DB::run(&mut local, "UPDATE person SET age = 1 WHERE id = 100").await.unwrap();
    if DB::NAME_IN_TESTS == "sqlite" {
        // The local transaction holds SQLite's only writer lock.
        local.rollback().await.unwrap();
        return;
    }
    global.rollback("test").await.unwrap();
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    let error = local.commit().await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ALREADY-DECIDED");
    let age = stage.value("SELECT age FROM person WHERE id = 100").await;
    assert_eq!(age.as_deref(), Some("20"));
    assert_eq!(stage.undo_rows().await, 0);
}

/// A branch is registered and rolled back before its local transaction commits. The guard row takes
/// the place of its undo row, also if the rollback is requested twice.
async fn a_guard_row_keeps_a_late_undo_row_out<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let branch = NewBranch {
        id: BranchId(77),
        resource: stage.resource.id().into(),
        mode: Mode::At,
        rows: Vec::new(),
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    let command = Command::RegisterBranch { xid: number(&xid), branch, wait };
    stage.tc.engine().call(command).await.unwrap();
    stage.roll_back(global).await;
    let guards = "SELECT COUNT(*) FROM undo_log WHERE log_status = 1 AND branch_id = 77";
    assert_eq!(stage.value(guards).await.as_deref(), Some("1"));
    let late = format!(
        "INSERT INTO undo_log (branch_id, xid, context, rollback_info, log_status) \
         VALUES (77, '{xid}', '', '', 0)"
    );
    let late = if DB::NAME_IN_TESTS == "sqlite" { late.replace("'', 0", "x'', 0") } else { late };
    let error = DB::raw(&stage.pool, &late).await.unwrap_err();
    assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
}

async fn branches_are_undone_in_reverse<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let before = stage.dump("person", COLUMNS).await;
    let global = stage.begin().await;
    for age in 1..=5 {
        let sql = format!("UPDATE person SET age = {age} WHERE id = 100");
        stage.branch(&global, &[&sql]).await;
    }
    stage.roll_back(global).await;
    assert_eq!(stage.dump("person", COLUMNS).await, before);
    assert_eq!(stage.undo_rows().await, 0);
}
