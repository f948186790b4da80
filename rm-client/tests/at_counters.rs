//! Declared counters: changes of undecided globals that do not wait for each other, and rollbacks
//! that give back what their own global has taken.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use at::{Stage, TestDatabase, code, on_every_database};
use handfast::{AtResource, Counter, Global, GlobalStatus, RollbackCause, TransactionError};
use handfast_core::{
    BranchState, Command, DecidedBy, Decision, LockFilter, OperatorAction, PageBounds, ReplyWhen,
    Resolution, VotingRounds,
};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Pool, Postgres};

const STOCK: &[&str] = &[
    "CREATE TABLE stock (id BIGINT NOT NULL PRIMARY KEY, units INT NOT NULL, \
     sold BIGINT NOT NULL, name VARCHAR(20), tag INT UNIQUE, loose INT)",
    "INSERT INTO stock (id, units, sold, tag) VALUES (1, 100, 0, 1), (2, 5, 0, 2)",
];
const TAKE: &str = "UPDATE stock SET units = units - 1 WHERE id = 1 AND units >= 1";
const GIVE: &str = "UPDATE stock SET units = units + 1 WHERE id = 1";
const SELL: &str =
    "UPDATE stock SET units = units - 2, sold = sold + 2 WHERE id = 1 AND units >= 2";
const ROW_LOCKED: &str = "HF-TC-ROW-LOCKED";

on_every_database!(
    changes_of_undecided_globals_hold_a_row_together,
    a_rollback_gives_back_what_its_global_has_taken,
    what_may_be_taken_back_is_not_taken_meanwhile,
    whatever_needs_the_value_waits,
    several_changes_of_one_row_come_back,
    a_row_that_is_changed_otherwise_too_is_held_alone,
    a_savepoint_takes_a_change_back,
    a_bound_that_no_condition_guards_is_kept,
    a_negative_amount_is_held_alone,
    a_value_that_is_no_number_is_held_alone,
    what_cannot_be_a_counter_is_refused,
    a_missing_row_needs_an_operator,
    an_operator_sees_counters_and_gives_them_back,
    a_hot_stock_is_right_in_closure_form,
    a_hot_stock_is_right_by_single_statements,
    a_global_that_ends_in_a_crowd_fails_alone,
    a_statement_that_is_given_up_in_a_crowd_is_no_part_of_a_commit,
    a_branch_in_a_crowd_is_undone_in_its_turn,
    many_negative_amounts_wait_for_each_other,
    a_counter_that_is_declared_twice_has_both_bounds,
    an_amount_is_given_back_to_numbers_alone,
    what_a_unique_column_may_be_computed_from_is_no_counter,
    a_crowd_takes_until_nothing_is_left,
    what_a_crowd_has_bound_comes_back,
    a_check_judges_each_of_a_crowd,
    a_column_ends_for_each_of_a_crowd,
);

/// A process that has declared the counters, and waits for no lock.
async fn impatient<DB: TestDatabase>(stage: &Stage<DB>) -> AtResource<DB> {
    let declared = declare(stage).lock_timeout(Duration::from_millis(1));
    declared.await.unwrap()
}

fn declare<DB: TestDatabase>(stage: &Stage<DB>) -> handfast::At<DB> {
    let at = stage.handfast.at(stage.pool.clone());
    at.counter("stock", "units", Counter::at_least(0)).counter(
        "stock",
        "sold",
        Counter::unbounded(),
    )
}

async fn run<DB: TestDatabase>(
    resource: &AtResource<DB>,
    global: &Global,
    sql: &str,
) -> Result<u64, String> {
    let ran = global.scope(DB::run_alone(resource, sql)).await;
    ran.map_err(|error| code(&error))
}

async fn branch<DB: TestDatabase>(
    resource: &AtResource<DB>,
    global: &Global,
    statements: &[&str],
) -> Result<(), String> {
    let work = async {
        let mut local = resource.begin().await?;
        for sql in statements {
            DB::run(&mut local, sql).await?;
        }
        local.commit().await
    };
    global.scope(work).await.map_err(|error| code(&error))
}

async fn units<DB: TestDatabase>(stage: &Stage<DB>, id: u32) -> i64 {
    let sql = format!("SELECT units FROM stock WHERE id = {id}");
    stage.value(&sql).await.unwrap().parse().unwrap()
}

async fn row<DB: TestDatabase>(stage: &Stage<DB>) -> Vec<String> {
    let columns = stage.dump("stock", &["id", "units", "sold", "name"]).await.remove(0);
    columns.into_iter().flatten().collect()
}

async fn changes_of_undecided_globals_hold_a_row_together<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let globals = [stage.begin().await, stage.begin().await, stage.begin().await];
    for global in &globals {
        assert_eq!(run(&resource, global, TAKE).await, Ok(1));
    }
    // Another kind, for which each has to hold the row alone.
    assert_eq!(run(&resource, &globals[1], SELL).await, Err(ROW_LOCKED.to_owned()));
    let locks = |coordinator: &handfast_core::Coordinator| {
        coordinator.locks(&LockFilter::default(), None, PageBounds::NONE).items
    };
    let locks = stage.tc.engine().view(locks).await.unwrap();
    let [lock] = locks.as_slice() else { unreachable!("{locks:?}") };
    assert_eq!(lock.holders.len(), 3);
    let [one, two, three] = globals;
    stage.roll_back(one).await;
    stage.commit(two).await;
    assert_eq!(units(&stage, 1).await, 98);
    stage.roll_back(three).await;
    assert_eq!(units(&stage, 1).await, 99);
    assert_eq!(stage.undo_rows().await, 0);
}

async fn a_rollback_gives_back_what_its_global_has_taken<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (one, other) = (stage.begin().await, stage.begin().await);
    assert_eq!(run(&resource, &one, SELL).await, Ok(1));
    assert_eq!(run(&resource, &other, SELL).await, Ok(1));
    stage.commit(other).await;
    // Not even a writer that respects nothing makes it dirty.
    DB::raw(&stage.pool, "UPDATE stock SET units = units + 7, name = 'x' WHERE id = 1")
        .await
        .unwrap();
    stage.roll_back(one).await;
    assert_eq!(row(&stage).await, ["1", "105", "2", "x"]);
}

/// Were it not so, a rollback of the delivery would leave less than nothing in stock.
async fn what_may_be_taken_back_is_not_taken_meanwhile<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (delivery, sale) = (stage.begin().await, stage.begin().await);
    let deliver = "UPDATE stock SET units = units + 10 WHERE id = 2";
    let take = "UPDATE stock SET units = units - 12 WHERE id = 2 AND units >= 12";
    assert_eq!(run(&resource, &delivery, deliver).await, Ok(1));
    assert_eq!(run(&resource, &sale, take).await, Err(ROW_LOCKED.to_owned()));
    // Deliveries do not wait for each other.
    let other = stage.begin().await;
    assert_eq!(run(&resource, &other, deliver).await, Ok(1));
    stage.roll_back(delivery).await;
    stage.commit(other).await;
    assert_eq!(run(&resource, &sale, take).await, Ok(1));
    stage.commit(sale).await;
    assert_eq!(units(&stage, 2).await, 3);
}

async fn whatever_needs_the_value_waits<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    // The resource of the stage has not declared the counters.
    let plain = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let plain = plain.await.unwrap();
    let (holder, other) = (stage.begin().await, stage.begin().await);
    assert_eq!(run(&resource, &holder, TAKE).await, Ok(1));
    let locked = Err(ROW_LOCKED.to_owned());
    assert_eq!(run(&plain, &other, TAKE).await, locked);
    for sql in [
        "UPDATE stock SET units = 50 WHERE id = 1",
        "UPDATE stock SET name = 'x' WHERE id = 1",
        "UPDATE stock SET units = units - 1 WHERE id < 2",
        "DELETE FROM stock WHERE id = 1",
    ] {
        assert_eq!(run(&resource, &other, sql).await, locked, "{sql}");
    }
    let mut checked = resource.begin_checked().await.unwrap();
    DB::run(&mut checked, TAKE).await.unwrap();
    assert_eq!(code(&checked.commit().await.unwrap_err()), ROW_LOCKED);
    if DB::NAME_IN_TESTS != "sqlite" {
        let read = ["SELECT units FROM stock WHERE id = 1 FOR UPDATE"];
        assert_eq!(branch(&resource, &other, &read).await, Err(ROW_LOCKED.to_owned()));
    }
    // And the other way round.
    assert_eq!(branch(&resource, &holder, &["DELETE FROM stock WHERE id = 2"]).await, Ok(()));
    let take = "UPDATE stock SET units = units - 1 WHERE id = 2";
    stage.commit(holder).await;
    assert_eq!(run(&resource, &other, "UPDATE stock SET name = 'x' WHERE id = 1").await, Ok(1));
    let third = stage.begin().await;
    assert_eq!(run(&resource, &third, TAKE).await, locked);
    assert_eq!(run(&resource, &third, take).await, Ok(0));
    stage.roll_back(other).await;
    stage.commit(third).await;
    assert_eq!(row(&stage).await, ["1", "99", "0"]);
}

async fn several_changes_of_one_row_come_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (one, other) = (stage.begin().await, stage.begin().await);
    for _ in 0..2 {
        assert_eq!(branch(&resource, &one, &[TAKE, TAKE, TAKE]).await, Ok(()));
    }
    assert_eq!(run(&resource, &other, TAKE).await, Ok(1));
    assert_eq!(units(&stage, 1).await, 93);
    stage.roll_back(one).await;
    assert_eq!(units(&stage, 1).await, 99);
    stage.commit(other).await;
    assert_eq!(stage.undo_rows().await, 0);
}

async fn a_row_that_is_changed_otherwise_too_is_held_alone<DB: TestDatabase>() {
    let others = [
        "UPDATE stock SET units = 30, name = 'x' WHERE id = 1",
        "UPDATE stock SET units = units * 2 WHERE id = 1",
        GIVE,
        "DELETE FROM stock WHERE id = 1",
    ];
    for other in others {
        for statements in [[TAKE, other, SELL], [SELL, TAKE, other], [other, SELL, TAKE]] {
            let stage = Stage::<DB>::new(STOCK).await;
            let resource = impatient(&stage).await;
            let before = row(&stage).await;
            let (global, second) = (stage.begin().await, stage.begin().await);
            assert_eq!(branch(&resource, &global, &statements).await, Ok(()));
            let refused = run(&resource, &second, TAKE).await;
            let is_gone = statements.iter().any(|sql| sql.starts_with("DELETE"));
            assert_eq!(refused, if is_gone { Ok(0) } else { Err(ROW_LOCKED.to_owned()) });
            stage.roll_back(global).await;
            assert_eq!(row(&stage).await, before, "{statements:?}");
            stage.roll_back(second).await;
        }
    }
}

async fn a_savepoint_takes_a_change_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (global, other) = (stage.begin().await, stage.begin().await);
    let statements = [TAKE, "SAVEPOINT a", TAKE, SELL, "ROLLBACK TO SAVEPOINT a", TAKE];
    assert_eq!(branch(&resource, &global, &statements).await, Ok(()));
    assert_eq!(run(&resource, &other, TAKE).await, Ok(1), "the two kinds are gone");
    assert_eq!(units(&stage, 1).await, 97);
    stage.roll_back(global).await;
    stage.commit(other).await;
    assert_eq!(row(&stage).await, ["1", "99", "0"]);
}

async fn a_bound_that_no_condition_guards_is_kept<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let global = stage.begin().await;
    let take = "UPDATE stock SET units = units - 6 WHERE id = 2";
    assert_eq!(run(&resource, &global, take).await, Err("HF-AT-COUNTER-BOUND".to_owned()));
    let caught = async {
        let mut local = resource.begin().await?;
        let refused = DB::run(&mut local, take).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-COUNTER-BOUND");
        local.commit().await
    };
    let error = global.scope(caught).await.unwrap_err();
    assert_eq!(code(&error), "HF-AT-HALF-RECORDED");
    let take = "UPDATE stock SET units = units - 5 WHERE id = 2";
    assert_eq!(run(&resource, &global, take).await, Ok(1));
    stage.commit(global).await;
    assert_eq!(units(&stage, 2).await, 0);
}

async fn a_negative_amount_is_held_alone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (global, other) = (stage.begin().await, stage.begin().await);
    let name = "UPDATE stock SET loose = -4 WHERE id = 1";
    DB::raw(&stage.pool, name).await.unwrap();
    // The sign is in the value, as it may be in an argument.
    let give = match DB::NAME_IN_TESTS {
        "mysql" => "UPDATE stock SET units = units - CAST(-4 AS SIGNED) WHERE id = 1",
        _ => "UPDATE stock SET units = units - CAST(-4 AS INTEGER) WHERE id = 1",
    };
    assert_eq!(run(&resource, &global, give).await, Ok(1));
    assert_eq!(run(&resource, &other, TAKE).await, Err(ROW_LOCKED.to_owned()));
    stage.roll_back(global).await;
    assert_eq!(units(&stage, 1).await, 100);
}

async fn a_value_that_is_no_number_is_held_alone<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let at = declare(&stage).counter("stock", "loose", Counter::unbounded());
    let resource = at.lock_timeout(Duration::from_millis(1)).await.unwrap();
    let (global, other) = (stage.begin().await, stage.begin().await);
    let add = "UPDATE stock SET loose = loose + 1 WHERE id = 1";
    assert_eq!(run(&resource, &global, add).await, Ok(1), "NULL stays NULL");
    assert_eq!(run(&resource, &other, add).await, Err(ROW_LOCKED.to_owned()));
    stage.roll_back(global).await;
    stage.roll_back(other).await;
}

async fn what_cannot_be_a_counter_is_refused<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    for column in ["id", "name", "tag", "nothing"] {
        let at = stage.handfast.at(stage.pool.clone());
        let resource = at.counter("stock", column, Counter::unbounded()).await.unwrap();
        let global = stage.begin().await;
        let refused = run(&resource, &global, TAKE).await;
        assert_eq!(refused, Err("HF-AT-COUNTER-UNFIT".to_owned()), "{column}");
        stage.roll_back(global).await;
    }
}

/// Regression: the last declaration of a column was left out, and a value beyond its bound stored.
async fn a_counter_that_is_declared_twice_has_both_bounds<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let at = declare(&stage).counter("stock", "units", Counter::at_most(101));
    let resource = at.lock_timeout(Duration::from_millis(1)).await.unwrap();
    let global = stage.begin().await;
    let over = ["units + 2", "units - 101"].map(|to| {
        let statement = format!("UPDATE stock SET units = {to} WHERE id = 1");
        (to, statement)
    });
    for (to, statement) in over {
        let refused = run(&resource, &global, &statement).await;
        assert_eq!(refused, Err("HF-AT-COUNTER-BOUND".to_owned()), "{to}");
    }
    assert_eq!(run(&resource, &global, GIVE).await, Ok(1));
    stage.roll_back(global).await;
}

/// Regression: NULL and a sum is NULL, and SQLite counts on from any text and beyond its numbers.
/// What was taken was gone then, and the rollback was said to be done.
async fn an_amount_is_given_back_to_numbers_alone<DB: TestDatabase>() {
    let values: &[&str] = match DB::NAME_IN_TESTS {
        "sqlite" => &["NULL", "'many'", "2.5", "9223372036854775806"],
        _ => &["NULL"],
    };
    for value in values {
        let stage = Stage::<DB>::new(STOCK).await;
        let at = declare(&stage).counter("stock", "loose", Counter::unbounded());
        let resource = at.await.unwrap();
        let global = stage.begin().await;
        DB::raw(&stage.pool, "UPDATE stock SET loose = 7 WHERE id = 1").await.unwrap();
        let take = "UPDATE stock SET loose = loose - 3 WHERE id = 1";
        assert_eq!(run(&resource, &global, take).await, Ok(1));
        let outside = format!("UPDATE stock SET loose = {value} WHERE id = 1");
        DB::raw(&stage.pool, &outside).await.unwrap();
        let (error, columns) = refuse(&stage, global, Resolution::AcceptCurrent).await;
        assert!(error.contains("dirty write: 1 of 1 rows"), "{value}: {error}");
        assert_eq!(columns[0].0, "loose");
    }
}

/// Regression: a unique index on a column that is computed from the counter stopped the rollback.
async fn what_a_unique_column_may_be_computed_from_is_no_counter<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE lot (id BIGINT NOT NULL PRIMARY KEY, units INT NOT NULL, \
         code INT GENERATED ALWAYS AS (units * 2) STORED UNIQUE)",
        "INSERT INTO lot (id, units) VALUES (1, 100)",
    ])
    .await;
    let at = stage.handfast.at(stage.pool.clone());
    let resource = at.counter("lot", "units", Counter::at_least(0)).await.unwrap();
    let global = stage.begin().await;
    let take = "UPDATE lot SET units = units - 1 WHERE id = 1";
    let refused = run(&resource, &global, take).await;
    assert_eq!(refused, Err("HF-AT-COUNTER-UNFIT".to_owned()));
    stage.roll_back(global).await;
}

/// Regression: without a declared bound others could take what was added, and its rollback met the
/// end of the type.
#[tokio::test]
async fn an_unsigned_counter_has_a_bound() {
    let stage = Stage::<MySql>::new(&[
        "CREATE TABLE lot (id BIGINT NOT NULL PRIMARY KEY, units INT UNSIGNED NOT NULL)",
        "INSERT INTO lot VALUES (1, 0)",
    ])
    .await;
    let at = stage.handfast.at(stage.pool.clone()).counter("lot", "units", Counter::unbounded());
    let resource = at.lock_timeout(Duration::from_millis(1)).await.unwrap();
    let (one, other) = (stage.begin().await, stage.begin().await);
    let add = "UPDATE lot SET units = units + 5 WHERE id = 1";
    assert_eq!(run(&resource, &one, add).await, Ok(1));
    let take = "UPDATE lot SET units = units - 5 WHERE id = 1";
    assert_eq!(run(&resource, &other, take).await, Err(ROW_LOCKED.to_owned()));
    stage.roll_back(one).await;
    stage.roll_back(other).await;
}

async fn a_missing_row_needs_an_operator<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let global = stage.begin().await;
    assert_eq!(run(&resource, &global, TAKE).await, Ok(1));
    DB::raw(&stage.pool, "DELETE FROM stock WHERE id = 1").await.unwrap();
    let (error, columns) = refuse(&stage, global, Resolution::AcceptCurrent).await;
    assert!(error.contains("dirty write: 1 of 1 rows"), "{error}");
    let texts = |it: &str| Some(it.to_owned());
    assert_eq!(columns, [("units".to_owned(), texts("100"), texts("99"), None)]);
}

/// The counters of a branch are shown as it saw them, and its other rows decide.
async fn an_operator_sees_counters_and_gives_them_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = impatient(&stage).await;
    let (global, other) = (stage.begin().await, stage.begin().await);
    let name = "UPDATE stock SET name = 'mine' WHERE id = 2";
    assert_eq!(branch(&resource, &global, &[name, TAKE, TAKE]).await, Ok(()));
    assert_eq!(run(&resource, &other, TAKE).await, Ok(1));
    stage.commit(other).await;
    DB::raw(&stage.pool, "UPDATE stock SET name = 'theirs' WHERE id = 2").await.unwrap();
    let (_, columns) = refuse(&stage, global, Resolution::ForceBefore).await;
    let text = |it: &str| Some(it.to_owned());
    let shown = [
        ("name".to_owned(), None, text("mine"), text("theirs")),
        ("units".to_owned(), text("100"), text("98"), text("97")),
    ];
    assert_eq!(columns, shown);
    // Not 100, which would undo what the other global has taken.
    assert_eq!(units(&stage, 1).await, 99);
    assert_eq!(stage.value("SELECT name FROM stock WHERE id = 2").await, None);
}

type ShownColumn = (String, Option<String>, Option<String>, Option<String>);

/// Rolls a global back that needs an operator, and gives the answer. Returns the error and the
/// columns of all rows that the operator sees.
async fn refuse<DB: TestDatabase>(
    stage: &Stage<DB>,
    global: Global,
    resolution: Resolution,
) -> (String, Vec<ShownColumn>) {
    let xid = global.xid().clone();
    let _ = global.rollback("test").await;
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
    let (_, number) = xid.as_str().rsplit_once(':').unwrap();
    let number = handfast_core::Xid(number.parse().unwrap());
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(number)).await;
    let branch = view.unwrap().unwrap().branches.remove(0);
    let BranchState::Refused(error, rows) = &branch.state else { unreachable!("{branch:?}") };
    let columns = rows.listed.iter().flat_map(|row| &row.columns);
    let columns = columns
        .map(|it| (it.name.clone(), it.before.clone(), it.after.clone(), it.current.clone()));
    let shown = (error.to_string(), columns.collect());
    let action = OperatorAction::Resolve { branch: branch.id, resolution };
    let command = Command::Operate { xid: number, action, operator: "tester".into() };
    stage.tc.engine().call(command).await.unwrap();
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    shown
}

const CLIENTS: usize = 8;
const ROUNDS: usize = 12;

/// Regression: the lock that a statement took ahead was that of what its text says. Two of them
/// that needed the row for themselves waited for each other, and one was refused as a deadlock.
async fn many_negative_amounts_wait_for_each_other<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let add = match DB::NAME_IN_TESTS {
        "postgres" => "UPDATE stock SET units = units + $1 WHERE id = $2",
        _ => "UPDATE stock SET units = units + ? WHERE id = ?",
    };
    let client = async |number: usize| {
        for round in 0..ROUNDS / 2 {
            let global = stage.begin().await;
            let added = global.scope(DB::run_alone_with(&resource, add, &[-1, 1])).await;
            assert_eq!(added.map_err(|error| code(&error)), Ok(1));
            if (number + round).is_multiple_of(2) {
                stage.roll_back(global).await;
            } else {
                global.commit().await.unwrap();
            }
        }
    };
    futures::future::join_all((0..CLIENTS).map(client)).await;
    let taken = i64::try_from(CLIENTS * ROUNDS / 4).unwrap();
    assert_eq!(units(&stage, 1).await, 100 - taken);
}

/// The form in which a statement is run.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Alone,
    Closure,
}

async fn a_hot_stock_is_right_in_closure_form<DB: TestDatabase>() {
    hot_stock::<DB>(Form::Closure).await;
}

async fn a_hot_stock_is_right_by_single_statements<DB: TestDatabase>() {
    hot_stock::<DB>(Form::Alone).await;
}

/// Clients sell and deliver until nothing is left; every fifth global is rolled back. What is in
/// stock is never less than nothing, whatever is undecided, and right at the end.
async fn hot_stock<DB: TestDatabase>(form: Form) {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let (sold, is_over, least) = (AtomicI64::new(0), AtomicBool::new(false), AtomicI64::new(100));
    let client = async |number: usize| {
        for round in 0..ROUNDS {
            let delivers = (number + round).is_multiple_of(8);
            let sql = if delivers {
                "UPDATE stock SET units = units + 3 WHERE id = 1"
            } else {
                "UPDATE stock SET units = units - 2 WHERE id = 1 AND units >= 2"
            };
            let global = stage.begin().await;
            let work = async {
                match form {
                    Form::Alone => DB::run_alone(&resource, sql).await,
                    Form::Closure => {
                        resource.transaction(async |mut local| DB::run(&mut local, sql).await).await
                    }
                }
            };
            let changed = i64::try_from(global.scope(work).await.unwrap()).unwrap();
            if (number * ROUNDS + round).is_multiple_of(5) {
                stage.roll_back(global).await;
            } else {
                global.commit().await.unwrap();
                sold.fetch_add(changed * if delivers { -3 } else { 2 }, Ordering::SeqCst);
            }
        }
    };
    let watch = async {
        while !is_over.load(Ordering::SeqCst) {
            least.fetch_min(units(&stage, 1).await, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    };
    let clients = async {
        futures::future::join_all((0..CLIENTS).map(client)).await;
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(watch, clients);
    assert!(least.into_inner() >= 0);
    assert!(sold.load(Ordering::SeqCst) > 0);
    assert_eq!(units(&stage, 1).await, 100 - sold.into_inner());
}

/// A statement and its arguments.
#[derive(Clone)]
struct Bound(String, Vec<i64>);

impl From<&str> for Bound {
    fn from(sql: &str) -> Self {
        Self(sql.to_owned(), Vec::new())
    }
}

/// Globals whose statements wait for rows that a local transaction of no global keeps locked.
struct Crowd<DB: TestDatabase> {
    outside: Pool<DB>,
    globals: Vec<Global>,
}

impl<DB: TestDatabase> Crowd<DB> {
    /// Runs the statement once, so that its plan is in memory.
    async fn new(
        stage: &Stage<DB>,
        resource: &AtResource<DB>,
        Bound(sql, arguments): Bound,
        count: usize,
    ) -> Self {
        let first = stage.begin().await;
        let taken = first.scope(DB::run_alone_with(resource, &sql, &arguments)).await;
        assert_eq!(taken.unwrap(), 1);
        stage.commit(first).await;
        let options = stage.pool.connect_options().as_ref().clone();
        let outside = PoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let begin = if DB::NAME_IN_TESTS == "sqlite" { "BEGIN IMMEDIATE" } else { "BEGIN" };
        DB::raw(&outside, begin).await.unwrap();
        DB::raw(&outside, "UPDATE stock SET name = name").await.unwrap();
        let globals = futures::future::join_all((0..count).map(|_| stage.begin())).await;
        Self { outside, globals }
    }

    /// Runs a statement in each global, lets the row go once all but the first hold its global
    /// lock and `meanwhile` is done, and returns what each has got.
    async fn run(
        &self,
        stage: &Stage<DB>,
        resource: &AtResource<DB>,
        statement: impl Fn(usize) -> Bound,
        meanwhile: impl AsyncFnOnce(),
    ) -> Vec<Result<u64, String>> {
        let run = async |(at, global): (usize, &Global)| {
            let Bound(sql, arguments) = statement(at);
            let ran = global.scope(DB::run_alone_with(resource, &sql, &arguments)).await;
            ran.map_err(|error| code(&error))
        };
        let ran = self.globals.iter().enumerate().map(run);
        let let_go = async {
            self.registered(stage).await;
            meanwhile().await;
            DB::raw(&self.outside, "ROLLBACK").await.unwrap();
        };
        tokio::join!(futures::future::join_all(ran), let_go).0
    }

    /// Commits the globals at even places and rolls back the others.
    async fn end(self, stage: &Stage<DB>) {
        for (at, global) in self.globals.into_iter().enumerate() {
            if at % 2 == 0 { stage.commit(global).await } else { stage.roll_back(global).await }
        }
        assert_eq!(stage.undo_rows().await, 0);
    }

    /// Runs the statement in all globals, and drops the futures when all but the first hold its
    /// global lock.
    async fn give_up(&self, stage: &Stage<DB>, resource: &AtResource<DB>) {
        let taken = self.globals.iter().map(|global| run(resource, global, TAKE));
        tokio::select! {
            taken = futures::future::join_all(taken) => unreachable!("{taken:?}"),
            () = self.registered(stage) => {}
        }
    }

    async fn registered(&self, stage: &Stage<DB>) {
        until("all but the first are registered", async || {
            holders(stage).await >= self.globals.len() - 1
        })
        .await;
    }
}

async fn holders<DB: TestDatabase>(stage: &Stage<DB>) -> usize {
    let locks = |coordinator: &handfast_core::Coordinator| {
        coordinator.locks(&LockFilter::default(), None, PageBounds::NONE).items
    };
    let locks = stage.tc.engine().view(locks).await.unwrap();
    locks.iter().map(|lock| lock.holders.len()).sum()
}

/// Regression: such a statement ran after its global was committed, and its undo row stayed.
async fn a_statement_that_is_given_up_in_a_crowd_is_no_part_of_a_commit<DB: TestDatabase>() {
    // The rollback of the one whose local transaction has begun needs a writer, and SQLite has one.
    if DB::NAME_IN_TESTS == "sqlite" {
        return;
    }
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let crowd = Crowd::new(&stage, &resource, TAKE.into(), 8).await;
    crowd.give_up(&stage, &resource).await;
    let Crowd { outside, globals } = crowd;
    let ended = futures::future::join_all(globals.into_iter().map(Global::commit)).await;
    for ended in ended {
        let cause = match ended {
            Ok(()) => continue,
            Err(TransactionError::RolledBack { by, .. }) => by,
            Err(error) => panic!("{error}"),
        };
        // Of one whose local transaction had begun.
        assert!(matches!(cause, RollbackCause::BranchUnknown), "{cause}");
    }
    DB::raw(&outside, "ROLLBACK").await.unwrap();
    let last = stage.begin().await;
    assert_eq!(run(&resource, &last, TAKE).await, Ok(1));
    stage.commit(last).await;
    until("nothing is left", async || (holders(&stage).await, stage.undo_rows().await) == (0, 0))
        .await;
    assert_eq!(units(&stage, 1).await, 100 - 2);
}

/// Regression: a counter's branch kept the place of its first registration though another branch of
/// its global had registered before it changed the row, and might have changed that too.
async fn a_branch_in_a_crowd_is_undone_in_its_turn<DB: TestDatabase>() {
    // The other branch needs a writer, and SQLite has one.
    if DB::NAME_IN_TESTS == "sqlite" {
        return;
    }
    let other = "CREATE TABLE other (id BIGINT NOT NULL PRIMARY KEY)";
    let stage = Stage::<DB>::new(&[STOCK[0], STOCK[1], other]).await;
    let resource = declare(&stage).await.unwrap();
    let crowd = Crowd::new(&stage, &resource, TAKE.into(), 8).await;
    let global = &crowd.globals[5];
    let other = async || {
        let insert = "INSERT INTO other (id) VALUES (3)";
        assert_eq!(run(&resource, global, insert).await, Ok(1));
    };
    let taken = crowd.run(&stage, &resource, |_| TAKE.into(), other).await;
    assert_eq!(taken, vec![Ok(1); 8]);
    let xid =
        handfast_core::Xid(global.xid().as_str().rsplit_once(':').unwrap().1.parse().unwrap());
    let view = stage.tc.engine().view(move |it| it.global(xid)).await;
    let branches = view.unwrap().unwrap().branches;
    let keys = branches.iter().flat_map(|branch| &branch.rows).map(|row| &*row.key);
    assert_eq!(keys.collect::<Vec<_>>(), [b"1:3", b"1:1"], "in the order of their registration");
    crowd.end(&stage).await;
    assert_eq!(units(&stage, 1).await, 100 - 1 - 4);
}

/// The undo row of one of them finds a guard row in its place, which fails the local transaction of
/// all.
async fn a_global_that_ends_in_a_crowd_fails_alone<DB: TestDatabase>() {
    // The guard row needs a writer, and SQLite has one.
    if DB::NAME_IN_TESTS == "sqlite" {
        return;
    }
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let mut crowd = Crowd::new(&stage, &resource, TAKE.into(), 8).await;
    let ended = crowd.globals[5].xid().clone();
    let end = async || {
        let number =
            handfast_core::Xid(ended.as_str().rsplit_once(':').unwrap().1.parse().unwrap());
        let by = DecidedBy::Operator;
        let command = Command::End {
            xid: number,
            decision: Decision::RollBack,
            rounds: VotingRounds::PrepareOnly,
            by,
            reason: "test".into(),
            reply_when: ReplyWhen::Decided,
        };
        stage.tc.engine().call(command).await.unwrap();
        stage.await_status(&ended, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    };
    let taken = crowd.run(&stage, &resource, |_| TAKE.into(), end).await;
    for (at, taken) in taken.into_iter().enumerate() {
        let finished = Err("HF-AT-GLOBAL-FINISHED".to_owned());
        assert_eq!(taken, if at == 5 { finished } else { Ok(1) }, "{at}");
    }
    drop(crowd.globals.remove(5));
    for global in crowd.globals {
        stage.commit(global).await;
    }
    assert_eq!(units(&stage, 1).await, 100 - 1 - 7);
}

/// Each guard is judged after what the statements before it have taken.
async fn a_crowd_takes_until_nothing_is_left<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let take: Bound = "UPDATE stock SET units = units - 1 WHERE id = 2 AND units >= 1".into();
    let crowd = Crowd::new(&stage, &resource, take.clone(), 10).await;
    let taken = crowd.run(&stage, &resource, |_| take.clone(), async || {}).await;
    let taken: Vec<u64> = taken.into_iter().map(Result::unwrap).collect();
    assert_eq!(taken.iter().sum::<u64>(), 4, "{taken:?}");
    assert_eq!(units(&stage, 2).await, 0);
    crowd.end(&stage).await;
    let given_back: u64 = taken.iter().skip(1).step_by(2).sum();
    assert_eq!(units(&stage, 2).await, i64::try_from(given_back).unwrap());
}

/// The amounts and the row are arguments, others for each.
async fn what_a_crowd_has_bound_comes_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let [a, b, c, d] = match DB::NAME_IN_TESTS {
        "postgres" => ["$1", "$2", "$3", "$4"],
        _ => ["?"; 4],
    };
    let sql = format!(
        "UPDATE stock SET units = units - {a}, sold = sold + {b} WHERE id = {c} AND {d} <= units"
    );
    let take = |amount: i64| Bound(sql.clone(), vec![amount, amount * 10, 1, amount]);
    let crowd = Crowd::new(&stage, &resource, take(1), 10).await;
    let amount = |at: usize| i64::try_from(at).unwrap() + 1;
    let taken = crowd.run(&stage, &resource, |at| take(amount(at)), async || {}).await;
    assert_eq!(taken, vec![Ok(1); 10]);
    assert_eq!(row(&stage).await, ["1", "44", "560"]);
    crowd.end(&stage).await;
    let kept = 1 + [1, 3, 5, 7, 9].iter().sum::<i64>();
    assert_eq!(row(&stage).await, ["1", &(100 - kept).to_string(), &(10 * kept).to_string()]);
}

/// The sum of all would pass over the value that the constraint does not allow.
async fn a_check_judges_each_of_a_crowd<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE stock (id BIGINT NOT NULL PRIMARY KEY, \
         units INT NOT NULL CHECK (units <> 98), sold BIGINT NOT NULL, name VARCHAR(20))",
        "INSERT INTO stock (id, units, sold) VALUES (1, 100, 0)",
    ])
    .await;
    let resource = declare(&stage).await.unwrap();
    let crowd = Crowd::new(&stage, &resource, TAKE.into(), 6).await;
    let taken = crowd.run(&stage, &resource, |_| TAKE.into(), async || {}).await;
    assert!(taken.iter().all(Result::is_err), "{taken:?}");
    assert_eq!(units(&stage, 1).await, 99);
    for global in crowd.globals {
        stage.roll_back(global).await;
    }
    assert_eq!(units(&stage, 1).await, 99);
}

/// The first of them reaches the greatest value of the column. SQLite's columns have none.
async fn a_column_ends_for_each_of_a_crowd<DB: TestDatabase>() {
    if DB::NAME_IN_TESTS == "sqlite" {
        return;
    }
    let stage = Stage::<DB>::new(STOCK).await;
    DB::raw(&stage.pool, "UPDATE stock SET units = 2147483645 WHERE id = 1").await.unwrap();
    let resource = declare(&stage).await.unwrap();
    let crowd = Crowd::new(&stage, &resource, GIVE.into(), 6).await;
    let given = crowd.run(&stage, &resource, |_| GIVE.into(), async || {}).await;
    assert_eq!(given.iter().filter(|given| given.is_ok()).count(), 1, "{given:?}");
    assert_eq!(units(&stage, 1).await, i64::from(i32::MAX));
    for global in crowd.globals {
        stage.roll_back(global).await;
    }
    assert_eq!(units(&stage, 1).await, i64::from(i32::MAX) - 1);
}

/// All but the first two share one local transaction and one change of the row, which PostgreSQL
/// shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_a_local_transaction() {
    let stage = Stage::<Postgres>::new(STOCK).await;
    let resource = declare(&stage).await.unwrap();
    let crowd = Crowd::new(&stage, &resource, TAKE.into(), 10).await;
    // Versions of the row follow each other on its page.
    let version = "SELECT (ctid::text::point)[1]::bigint FROM stock WHERE id = 1";
    let version = async || stage.value(version).await.unwrap().parse::<u64>().unwrap();
    let before = version().await;
    let taken = crowd.run(&stage, &resource, |_| TAKE.into(), async || {}).await;
    assert_eq!(taken, vec![Ok(1); 10]);
    let transactions = stage.value("SELECT COUNT(DISTINCT xmin::text) FROM undo_log").await;
    let transactions: usize = transactions.unwrap().parse().unwrap();
    // One by itself; then 9, of which some had begun before the others came, by powers of two.
    assert!(transactions <= 5, "{transactions} local transactions for 10 branches");
    // Two of them are of the local transaction outside, one of each row.
    let versions = version().await - before;
    assert!(versions <= 7, "{versions} versions of the row for 10 branches");
    crowd.end(&stage).await;
    assert_eq!(units(&stage, 1).await, 100 - 1 - 5);
}
