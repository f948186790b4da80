//! Global locks as applications see them: conflicts, waiting, deadlocks, locking reads, savepoints.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use at::{Stage, TestDatabase, code, on_every_database};
use handfast::{AtError, AtResource, GlobalStatus, RejectionDetail};
use handfast_test_services::until;
use tokio::sync::Notify;

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, amount INT NOT NULL)",
    "INSERT INTO account VALUES (1, 0), (2, 0), (3, 0)",
];

on_every_database!(
    a_held_row_is_refused_after_the_timeout,
    a_global_may_write_its_row_again,
    hot_rows_in_closure_form_all_finish,
    hot_rows_by_single_statements_all_finish,
    opposite_lock_order_is_refused_with_the_cycle,
    a_deadlock_in_the_database_is_repeated,
    a_closure_that_ignores_a_deadlock_is_repeated,
    a_locking_read_holds_its_rows,
    a_checked_transaction_respects_globals,
    committed_reads_wait_for_the_holder,
    rolling_back_to_a_savepoint_drops_later_changes,
    a_read_only_branch_registers_nothing,
    a_failed_closure_rolls_back,
    a_waiting_branch_makes_way_for_its_holder,
    a_checked_transaction_makes_way_for_its_holder,
    a_checked_closure_waits_with_nothing_held,
    a_checked_write_respects_readers,
);

async fn amount<DB: TestDatabase>(stage: &Stage<DB>, id: u32) -> i64 {
    let sql = format!("SELECT amount FROM account WHERE id = {id}");
    stage.value(&sql).await.unwrap().parse().unwrap()
}

async fn a_held_row_is_refused_after_the_timeout<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 1"]).await;
    let other = stage.begin().await;
    let sql = "UPDATE account SET amount = 2 WHERE id = 1";
    let error = other.scope(DB::run_alone(&impatient, sql)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
    let rejection = AtError::of(&error).and_then(AtError::rejection).unwrap();
    let RejectionDetail::RowLocked { holder: by, .. } = rejection.detail() else {
        unreachable!("{rejection:?}");
    };
    assert_eq!(by.as_ref(), holder.xid().as_str());
    assert_eq!(amount(&stage, 1).await, 1);
    // Another row is not locked, and the refused branch has left no lock.
    let sql = "UPDATE account SET amount = 2 WHERE id = 2";
    other.scope(DB::run_alone(&impatient, sql)).await.unwrap();
    stage.roll_back(holder).await;
    stage.commit(other).await;
    assert_eq!((amount(&stage, 1).await, amount(&stage, 2).await), (0, 2));
}

async fn a_global_may_write_its_row_again<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let global = stage.begin().await;
    for _ in 0..3 {
        let twice = ["UPDATE account SET amount = amount + 1 WHERE id = 1"; 2];
        stage.branch(&global, &twice).await;
    }
    stage.commit(global).await;
    assert_eq!(amount(&stage, 1).await, 6);
}

/// Runs 8 clients with 5 globals each, all on one row. Every other global rolls back.
async fn hot_rows<DB: TestDatabase>(alone: bool) {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let client = async || {
        for round in 0..5 {
            let global = stage.begin().await;
            let sql = "UPDATE account SET amount = amount + 1 WHERE id = 1";
            let work = async {
                if alone {
                    return DB::run_alone(&stage.resource, sql).await;
                }
                stage.resource.transaction(async |mut local| DB::run(&mut local, sql).await).await
            };
            assert_eq!(global.scope(work).await.unwrap(), 1);
            if round % 2 == 0 {
                global.commit().await.unwrap();
            } else {
                global.rollback("every other one").await.unwrap();
            }
        }
    };
    futures::future::join_all((0..8).map(|_| client())).await;
    assert_eq!(amount(&stage, 1).await, 24);
}

async fn hot_rows_in_closure_form_all_finish<DB: TestDatabase>() {
    hot_rows::<DB>(false).await;
}

async fn hot_rows_by_single_statements_all_finish<DB: TestDatabase>() {
    hot_rows::<DB>(true).await;
}

async fn opposite_lock_order_is_refused_with_the_cycle<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (a, b) = (stage.begin().await, stage.begin().await);
    let add = |id: u32| format!("UPDATE account SET amount = amount + 1 WHERE id = {id}");
    a.scope(DB::run_alone(&stage.resource, &add(1))).await.unwrap();
    b.scope(DB::run_alone(&stage.resource, &add(2))).await.unwrap();
    let (second, first) = (add(2), add(1));
    // The refused global rolls back, so that the other one can continue.
    let finish = async |global: handfast::Global, sql: &str| match global
        .scope(DB::run_alone(&stage.resource, sql))
        .await
    {
        Ok(_) => {
            global.commit().await.unwrap();
            true
        }
        Err(error) => {
            assert_eq!(code(&error), "HF-TC-DEADLOCK");
            global.rollback("deadlock").await.unwrap();
            false
        }
    };
    let (a, b) = tokio::join!(finish(a, &second), finish(b, &first));
    assert!(a != b, "one is refused, one finishes");
    assert_eq!((amount(&stage, 1).await, amount(&stage, 2).await), (1, 1));
}

/// How the application treats a statement that fails with a deadlock.
#[derive(Clone, Copy, PartialEq)]
enum OnDeadlock {
    AnError,
    Nothing,
}

/// Each transaction holds the row that the other needs next, and neither is a registered branch, so
/// only the database can detect the deadlock. On a database with one writer at a time there is
/// none.
async fn database_deadlock<DB: TestDatabase>(makes: OnDeadlock) {
    let (stage, waits) = (Stage::<DB>::new(ACCOUNT).await, DB::NAME_IN_TESTS != "sqlite");
    let (holding, others) = (Notify::new(), Notify::new());
    let add = |id: u32| format!("UPDATE account SET amount = amount + 1 WHERE id = {id}");
    let cross = async |ids: [u32; 2], mine: &Notify, other: &Notify| {
        let (global, sql, runs) = (stage.begin().await, ids.map(add), AtomicU32::new(0));
        let work = stage.resource.transaction(async |mut local| {
            let is_first = runs.fetch_add(1, Ordering::Relaxed) == 0;
            DB::run(&mut local, &sql[0]).await?;
            mine.notify_one();
            if is_first && waits {
                other.notified().await;
            }
            let second = DB::run(&mut local, &sql[1]).await;
            if makes == OnDeadlock::Nothing { Ok(0) } else { second }
        });
        global.scope(work).await.unwrap();
        global.commit().await.unwrap();
        runs.into_inner()
    };
    let runs = tokio::join!(cross([1, 2], &holding, &others), cross([2, 1], &others, &holding));
    assert_eq!((amount(&stage, 1).await, amount(&stage, 2).await), (2, 2));
    assert_eq!(runs.0 + runs.1 > 2, waits, "{runs:?}");
}

async fn a_deadlock_in_the_database_is_repeated<DB: TestDatabase>() {
    database_deadlock::<DB>(OnDeadlock::AnError).await;
}

/// The closure returns `Ok`, but the database has ended its local transaction.
async fn a_closure_that_ignores_a_deadlock_is_repeated<DB: TestDatabase>() {
    database_deadlock::<DB>(OnDeadlock::Nothing).await;
}

async fn a_locking_read_holds_its_rows<DB: TestDatabase>() {
    if DB::NAME_IN_TESTS == "sqlite" {
        return; // It has no FOR UPDATE.
    }
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let reader = stage.begin().await;
    stage.branch(&reader, &["SELECT amount FROM account WHERE id = 1 FOR UPDATE"]).await;
    let writer = stage.begin().await;
    let sql = "UPDATE account SET amount = 2 WHERE id = 1";
    let error = writer.scope(DB::run_alone(&impatient, sql)).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-LOCKED");
    stage.commit(reader).await;
    writer.scope(DB::run_alone(&impatient, sql)).await.unwrap();
    stage.commit(writer).await;
}

async fn a_checked_transaction_respects_globals<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap();
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 1"]).await;
    let sql = "UPDATE account SET amount = 5 WHERE id = 1";
    let mut local = impatient.begin_checked().await.unwrap();
    DB::run(&mut local, sql).await.unwrap();
    assert_eq!(code(&local.commit().await.unwrap_err()), "HF-TC-ROW-LOCKED");
    assert_eq!(amount(&stage, 1).await, 1);
    stage.commit(holder).await;
    let mut local = impatient.begin_checked().await.unwrap();
    DB::run(&mut local, sql).await.unwrap();
    local.commit().await.unwrap();
    assert_eq!((amount(&stage, 1).await, stage.undo_rows().await), (5, 0));
    let global = stage.begin().await;
    let refused = global.scope(stage.resource.begin_checked()).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-CHECKED-INSIDE-GLOBAL");
    let refused = global.scope(DB::run_alone(&stage.resource.checked(), sql)).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-CHECKED-INSIDE-GLOBAL");
    stage.commit(global).await;
}

/// The rollback of the holder needs the row, on SQLite the only writer lock.
async fn a_checked_closure_waits_with_nothing_held<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 1"]).await;
    let (attempts, checked) = (AtomicU32::new(0), stage.resource.checked());
    let work = checked.transaction(async |mut local| {
        attempts.fetch_add(1, Ordering::Relaxed);
        DB::run(&mut local, "UPDATE account SET amount = amount + 5 WHERE id = 1").await
    });
    let rolls_back = async {
        until("the closure waits", async || {
            let waiters = stage.tc.engine().view(|coordinator| coordinator.counts().waiters);
            waiters.await.unwrap() > 0
        })
        .await;
        stage.roll_back(holder).await;
    };
    let (worked, ()) = tokio::join!(work, rolls_back);
    assert_eq!(worked.unwrap(), 1);
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
    let statement = "UPDATE account SET amount = amount * 2 WHERE id = 1";
    assert_eq!(DB::run_alone(&checked, statement).await.unwrap(), 1);
    assert_eq!((amount(&stage, 1).await, stage.undo_rows().await), (10, 0));
}

async fn a_checked_write_respects_readers<DB: TestDatabase>() {
    let share = match DB::NAME_IN_TESTS {
        "sqlite" => return, // It has no locking reads.
        "mysql" => "LOCK IN SHARE MODE",
        _ => "FOR SHARE",
    };
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let impatient = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::from_millis(1));
    let impatient = impatient.await.unwrap().checked();
    let reader = stage.begin().await;
    let read = format!("SELECT amount FROM account WHERE id = 1 {share}");
    stage.branch(&reader, &[&read]).await;
    let mut local = impatient.begin().await.unwrap();
    DB::run(&mut local, &read).await.unwrap();
    local.commit().await.unwrap();
    let sql = "UPDATE account SET amount = 2 WHERE id = 1";
    let refused = DB::run_alone(&impatient, sql).await.unwrap_err();
    assert_eq!(code(&refused), "HF-TC-ROW-LOCKED");
    stage.commit(reader).await;
    DB::run_alone(&impatient, sql).await.unwrap();
    assert_eq!(amount(&stage, 1).await, 2);
}

async fn committed_reads_wait_for_the_holder<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 1"]).await;
    let reader = stage.handfast.transaction("read").read_committed().begin().await.unwrap();
    let read = reader.scope(stage.resource.transaction(async |mut local| {
        let sql = format!("SELECT CAST(amount AS {}) FROM account WHERE id = 1", DB::TEXT);
        DB::read(&mut local, &sql).await
    }));
    // The read is polled first and finds the row locked. It must see the restored row.
    let (rows, ()) = tokio::join!(read, stage.roll_back(holder));
    assert_eq!(rows.unwrap()[0][0].as_deref(), Some("0"));
    stage.commit(reader).await;
}

async fn rolling_back_to_a_savepoint_drops_later_changes<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let global = stage.begin().await;
    let work = async {
        let mut local = stage.resource.begin().await?;
        DB::run(&mut local, "UPDATE account SET amount = 1 WHERE id = 1").await?;
        local.savepoint("before \"two\"").await?;
        DB::run(&mut local, "UPDATE account SET amount = 2 WHERE id = 2").await?;
        local.savepoint("inner").await?;
        DB::run(&mut local, "UPDATE account SET amount = 3 WHERE id = 3").await?;
        local.release_savepoint("inner").await?;
        local.rollback_to("before \"two\"").await?;
        let unknown = local.rollback_to("inner").await.unwrap_err();
        assert_eq!(code(&unknown), "HF-AT-SAVEPOINT");
        local.commit().await
    };
    global.scope(work).await.unwrap();
    // Row 2 is not locked: another global can lock it at once.
    let other = stage.begin().await;
    stage.branch(&other, &["UPDATE account SET amount = 9 WHERE id = 2"]).await;
    stage.commit(other).await;
    stage.roll_back(global).await;
    assert_eq!((amount(&stage, 1).await, amount(&stage, 2).await), (0, 9));
}

async fn a_read_only_branch_registers_nothing<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let nothing = ["SELECT id FROM account", "UPDATE account SET amount = 1 WHERE id = -1"];
    stage.branch(&global, &nothing).await;
    global.commit().await.unwrap();
    // Without branches there is no phase two, so the global is finished at once.
    assert_eq!(stage.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committed);
    assert_eq!(stage.undo_rows().await, 0);
}

async fn a_failed_closure_rolls_back<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let global = stage.begin().await;
    let work = stage.resource.try_transaction(async |mut local| {
        DB::run(&mut local, "UPDATE account SET amount = 1 WHERE id = 1").await?;
        Err::<(), _>(anyhow::anyhow!("out of stock"))
    });
    let error = global.scope(work).await.unwrap_err();
    assert_eq!(error.to_string(), "out of stock");
    assert_eq!(amount(&stage, 1).await, 0);
    stage.commit(global).await;
}

/// A local transaction holds a row in the database that the holder of another row wants next, and
/// waits in the coordinator for that holder. Neither lock table shows the whole cycle.
async fn made_way<DB: TestDatabase>(waits: impl AsyncFnOnce(&Stage<DB>, AtResource<DB>, &Notify)) {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let patient = stage.handfast.at(stage.pool.clone()).lock_timeout(2 * HOLDERS_TIME);
    let patient = patient.await.unwrap();
    let holder = stage.handfast.transaction("holder").timeout(HOLDERS_TIME);
    let (holder, holds) = (holder.begin().await.unwrap(), Notify::new());
    stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 1"]).await;
    let next = async {
        holds.notified().await;
        stage.branch(&holder, &["UPDATE account SET amount = 1 WHERE id = 2"]).await;
    };
    // Without a report the holder's global would time out first.
    tokio::join!(waits(&stage, patient, &holds), next);
    stage.commit(holder).await;
    assert_eq!((amount(&stage, 1).await, amount(&stage, 2).await), (1, 1));
}

const HOLDERS_TIME: Duration = Duration::from_secs(20);
const IN_THE_WAY: [&str; 2] =
    ["UPDATE account SET amount = 5 WHERE id = 2", "UPDATE account SET amount = 5 WHERE id = 1"];

async fn a_waiting_branch_makes_way_for_its_holder<DB: TestDatabase>() {
    made_way::<DB>(async |stage, patient, holds| {
        let other = stage.begin().await;
        let refused = other.scope(async {
            let mut local = patient.begin().await?;
            for sql in IN_THE_WAY {
                DB::run(&mut local, sql).await?;
            }
            holds.notify_one();
            local.commit().await
        });
        assert_eq!(code(&refused.await.unwrap_err()), "HF-TC-ROW-LOCKED");
        stage.roll_back(other).await;
    })
    .await;
}

async fn a_checked_transaction_makes_way_for_its_holder<DB: TestDatabase>() {
    made_way::<DB>(async |_, patient, holds| {
        let mut local = patient.begin_checked().await.unwrap();
        for sql in IN_THE_WAY {
            DB::run(&mut local, sql).await.unwrap();
        }
        holds.notify_one();
        assert_eq!(code(&local.commit().await.unwrap_err()), "HF-TC-ROW-LOCKED");
    })
    .await;
}
