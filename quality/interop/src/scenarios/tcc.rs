//! TCC: both ends, the deadline, a process that is gone, a coordinator that was killed.

use anyhow::{Result, ensure};

use super::crashes::{BEGIN, until_known};
use crate::stage::Stage;
use crate::wait::{same, until_same};

/// How a reservation stands, and how often phase two came.
fn state(stage: &Stage, key: u32) -> Result<String> {
    stage.plain(&format!("select state, ends from reservation where id = {key}"))
}

/// Confirmed before the client is told that it committed.
pub(super) fn commit(stage: &Stage) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("reserve {key}"))?;
    same("phase one", &state(stage, key)?, &"tried,0".to_owned())?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("phase two", &state(stage, key)?, &"confirmed,1".to_owned())?;
    stage.until_status(&xid, "Committed")
}

/// Cancelled.
pub(super) fn roll_back(stage: &Stage) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("reserve {key}"))?;
    same("the end", &buyer.tell("rollback")?, &"RollbackDone".to_owned())?;
    same("phase two", &state(stage, key)?, &"cancelled,1".to_owned())?;
    stage.until_status(&xid, "Rollbacked")
}

/// Cancelled by the deadline.
pub(super) fn timeout(stage: &Stage) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(1500)?;
    buyer.tell(&format!("reserve {key}"))?;
    until_same("phase two", &"cancelled,1".to_owned(), || state(stage, key))?;
    stage.until_status(&xid, "TimeoutRollbacked")?;
    ensure!(buyer.tell("commit")? != "Committed", "told that it committed");
    Ok(())
}

/// The process that tried is gone: another one of its application confirms.
pub(super) fn two_processes(stage: &Stage) -> Result<()> {
    let key = stage.new_id();
    let second = stage.second_shop()?;
    let (desk, buyer) = (stage.desk(), second.actor());
    let xid = desk.begin(120_000)?;
    buyer.join(&xid)?;
    buyer.tell(&format!("reserve {key}"))?;
    stage.shop().actor().tell("reserve register")?;
    second.kill()?;
    same("the end", &desk.tell("commit")?, &"Committed".to_owned())?;
    until_same("phase two", &"confirmed,1".to_owned(), || state(stage, key))
}

/// Killed between phase one and the decision.
pub(super) fn killed_before_commit(stage: &Stage) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.tell_until_done(BEGIN)?;
    buyer.tell_until_done(&format!("reserve {key}"))?;
    stage.coordinator().kill()?;
    stage.coordinator().restart()?;
    until_known(&buyer, &xid)?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    until_same("phase two", &"confirmed,1".to_owned(), || state(stage, key))?;
    stage.until_status(&xid, "Committed")
}
