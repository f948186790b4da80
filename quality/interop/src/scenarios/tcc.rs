//! TCC: commit, rollback, timeout, a killed process, a killed coordinator.

use anyhow::{Result, ensure};

use super::crashes::{BEGIN, until_known};
use crate::stage::TestBed;
use crate::wait::{same, until_same};

/// Returns the state of a reservation, and how often phase two was called.
pub(super) fn state(stage: &TestBed, key: u32) -> Result<String> {
    stage.plain(&format!("select state, ends from reservation where id = {key}"))
}

/// The branch is confirmed before the client gets the answer to its commit.
pub(super) fn commit(stage: &TestBed) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("reserve {key}"))?;
    same("phase one", &state(stage, key)?, &"tried,0".to_owned())?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("phase two", &state(stage, key)?, &"confirmed,1".to_owned())?;
    stage.until_status(&xid, "Committed")
}

/// The branch is cancelled by a rollback.
pub(super) fn roll_back(stage: &TestBed) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("reserve {key}"))?;
    same("the end", &buyer.tell("rollback")?, &"RollbackDone".to_owned())?;
    same("phase two", &state(stage, key)?, &"cancelled,1".to_owned())?;
    stage.until_status(&xid, "Rollbacked")
}

/// The branch is cancelled at the deadline of the global.
pub(super) fn timeout(stage: &TestBed) -> Result<()> {
    let key = stage.new_id();
    let buyer = stage.shop().actor();
    let xid = buyer.begin(1500)?;
    buyer.tell(&format!("reserve {key}"))?;
    until_same("phase two", &"cancelled,1".to_owned(), || state(stage, key))?;
    stage.until_status(&xid, "TimeoutRollbacked")?;
    ensure!(buyer.tell("commit")? != "Committed", "a late commit is answered as committed");
    Ok(())
}

/// The process that ran the try is killed, and another process of its application confirms.
pub(super) fn two_processes(stage: &TestBed) -> Result<()> {
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

/// The coordinator is killed between phase one and the decision.
pub(super) fn killed_before_commit(stage: &TestBed) -> Result<()> {
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
