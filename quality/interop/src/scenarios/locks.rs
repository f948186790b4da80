//! Global locks: waiting, giving up, and reading only what is committed.

use anyhow::Result;

use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

/// A client that waits for a lock gets it when the holder's global ends.
pub(super) fn wait(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let (first, second) = (stage.shop().actor(), stage.shop().actor());
    first.begin(120_000)?;
    first.tell(&format!("at {}", take_one(row)))?;
    let xid = second.begin(120_000)?;
    let waiting = second.ask(&format!("at {}", take_one(row)))?;
    waiting.must_wait()?;
    first.tell("commit")?;
    waiting.done()?;
    same("the end", &second.tell("commit")?, &"Committed".to_owned())?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 2))?;
    stage.until_no_undo_rows(&xid)
}

/// A client that waits for a lock in vain gives up, has changed nothing, and can go on with another
/// row.
pub(super) fn conflict(stage: &TestBed) -> Result<()> {
    let (row, other) = (stage.new_row()?, stage.new_row()?);
    let (first, second) = (stage.shop().actor(), stage.shop().actor());
    first.begin(120_000)?;
    first.tell(&format!("at {}", take_one(row)))?;
    second.begin(120_000)?;
    second.ask(&format!("at {}", take_one(row)))?.failed()?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    second.tell(&format!("at {}", take_one(other)))?;
    same("the end of the second", &second.tell("commit")?, &"Committed".to_owned())?;
    same("the end of the first", &first.tell("rollback")?, &"RollbackDone".to_owned())?;
    same("the amount", &stage.amount(row)?, &AMOUNT)?;
    same("the other amount", &stage.amount(other)?, &(AMOUNT - 1))
}

/// The same in a local transaction that the application opened. It holds the database's own lock of
/// the row, which the rollback of the first needs: the second must give up for it.
pub(super) fn conflict_of_open_transaction(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let (first, second) = (stage.shop().actor(), stage.shop().actor());
    let xid = first.begin(120_000)?;
    first.tell(&format!("at {}", take_one(row)))?;
    second.begin(120_000)?;
    let waiting = second.ask(&format!("at-local {}", take_one(row)))?;
    waiting.must_wait()?;
    let rolling_back = first.ask("rollback")?;
    waiting.failed()?;
    rolling_back.done()?;
    second.tell("rollback")?;
    stage.until_amount(row, AMOUNT)?;
    stage.until_no_undo_rows(&xid)
}

/// A read under the global lock sees no change that may yet be rolled back.
pub(super) fn read_under_global_lock(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let read = format!("locked select amount from stock where id = {row} for update");
    let (writer, reader) = (stage.shop().actor(), stage.shop().actor());
    same("unlocked", &reader.tell(&read)?, &AMOUNT.to_string())?;
    writer.begin(120_000)?;
    writer.tell(&format!("at {}", take_one(row)))?;
    reader.ask(&read)?.failed()?;
    writer.tell("rollback")?;
    same("rolled back", &reader.tell(&read)?, &AMOUNT.to_string())?;
    writer.begin(120_000)?;
    writer.tell(&format!("at {}", take_one(row)))?;
    let waiting = reader.ask(&read)?;
    waiting.must_wait()?;
    writer.tell("commit")?;
    same("committed", &waiting.done()?, &(AMOUNT - 1).to_string())
}
