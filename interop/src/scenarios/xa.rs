//! XA: the database holds the change back until phase two.

use anyhow::{Result, ensure};

use crate::stage::{AMOUNT, Stage, take_one};
use crate::wait::same;

/// Seen by nobody before the commit, and by everybody when the client is told of it.
pub(super) fn commit(stage: &Stage) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("xa {}", take_one(row)))?;
    same("the amount in phase one", &stage.amount(row)?, &AMOUNT)?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_status(&xid, "Committed")
}

/// Seen by nobody, ever; the rows are free again.
pub(super) fn roll_back(stage: &Stage) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    let two = [take_one(row), take_one(row)].join(";;");
    buyer.tell(&format!("xa-local {two}"))?;
    same("the end", &buyer.tell("rollback")?, &"RollbackDone".to_owned())?;
    stage.plain(&take_one(row))?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_status(&xid, "Rollbacked")
}

/// Rolled back by the deadline; the rows are free again.
pub(super) fn timeout(stage: &Stage) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(1500)?;
    buyer.tell(&format!("xa {}", take_one(row)))?;
    stage.until_status(&xid, "TimeoutRollbacked")?;
    ensure!(buyer.tell("commit")? != "Committed", "told that it committed");
    stage.plain(&take_one(row))?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))
}
