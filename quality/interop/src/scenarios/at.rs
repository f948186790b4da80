//! AT: commit, rollback, timeout, a row changed outside of any global, a killed process.

use anyhow::{Result, ensure};

use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

/// Committed: the change stays, the undo row goes.
pub(super) fn commit(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    same("undo rows in phase one", &stage.undo_rows(&xid)?, &"1".to_owned())?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "Committed")
}

/// Rolled back: updates, inserts and deletes of several branches leave no trace.
pub(super) fn roll_back(stage: &TestBed) -> Result<()> {
    let (row, gone, new) = (stage.new_row()?, stage.new_row()?, stage.new_id());
    let all = format!("select * from stock where id in ({row}, {gone}, {new}) order by id");
    let before = stage.plain(&all)?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    let insert = format!("insert into stock (id, name, amount) values ({new}, 'new', 5)");
    let delete = format!("delete from stock where id = {gone}");
    let statements = [take_one(row), insert, delete].join(";;");
    buyer.tell(&format!("at-local {statements}"))?;
    ensure!(stage.plain(&all)? != before, "phase one has changed nothing");
    same("the end", &buyer.tell("rollback")?, &"RollbackDone".to_owned())?;
    same("the rows", &stage.plain(&all)?, &before)?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "Rollbacked")
}

/// The global is rolled back at its deadline, and a late commit is not answered as committed.
pub(super) fn timeout(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(1500)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    same("the amount in time", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_amount(row, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "TimeoutRollbacked")?;
    let end = buyer.tell("commit")?;
    ensure!(end != "Committed", "told that it committed");
    same("the amount", &stage.amount(row)?, &AMOUNT)
}

/// The row was changed outside of the global: nothing is overwritten, and the global needs an
/// operator.
pub(super) fn dirty_write(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    stage.plain(&format!("update stock set amount = 7 where id = {row}"))?;
    buyer.tell("rollback")?;
    stage.until_status(&xid, "RollbackFailed")?;
    same("the amount", &stage.amount(row)?, &7)
}

/// The process that wrote is gone: another one of its application rolls back.
pub(super) fn two_processes(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let second = stage.second_shop()?;
    let (desk, buyer) = (stage.desk(), second.actor());
    let xid = desk.begin(120_000)?;
    buyer.join(&xid)?;
    buyer.tell(&format!("at {}", take_one(row)))?;
    same("the amount in phase one", &stage.amount(row)?, &(AMOUNT - 1))?;
    second.kill()?;
    same("the end", &desk.tell("rollback")?, &"RollbackDone".to_owned())?;
    same("the amount", &stage.amount(row)?, &AMOUNT)?;
    stage.until_no_undo_rows(&xid)
}

/// An undo row is left by a process that was killed: another process deletes it when it is old.
pub(super) fn old_undo_logs(stage: &TestBed) -> Result<()> {
    // No process has the database as a resource before it is used.
    commit(stage)?;
    let branch = stage.new_id();
    for (xid, day) in [("old", "2020-01-01"), ("new", "2999-01-01")] {
        stage.plain(&format!(
            "insert into undo_log \
             (branch_id, xid, context, rollback_info, log_status, log_created, log_modified) \
             values ({branch}, '{xid}', '', '', 0, '{day} 00:00:00', '{day} 00:00:00')"
        ))?;
    }
    stage.until_no_undo_rows("old")?;
    same("what is young", &stage.undo_rows("new")?, &"1".to_owned())
}
