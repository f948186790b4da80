//! The coordinator dies and comes back; the line to it is cut.

use anyhow::{Result, ensure};

use crate::service::Actor;
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

/// Begins a global with a timeout that no scenario reaches.
pub(super) const BEGIN: &str = "begin 300000";

/// Waits until the client has found the coordinator again, which knows the global as it was.
pub(super) fn until_known(actor: &Actor<'_>, xid: &str) -> Result<()> {
    let status = actor.tell_until_done(&format!("status {xid}"))?;
    same("the status after the restart", &status, &"Begin".to_owned())
}

/// The scenario before may have cut the client off.
fn begin_with_branch(actor: &Actor<'_>, row: u32) -> Result<String> {
    let xid = actor.tell_until_done(BEGIN)?;
    actor.tell_until_done(&format!("at {}", take_one(row)))?;
    Ok(xid)
}

/// The coordinator is killed between phase one and the decision, which is rollback.
pub(super) fn before_rollback(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = begin_with_branch(&buyer, row)?;
    stage.coordinator().kill()?;
    same("undo rows without a coordinator", &stage.undo_rows(&xid)?, &"1".to_owned())?;
    stage.coordinator().restart()?;
    until_known(&buyer, &xid)?;
    buyer.tell("rollback")?;
    stage.until_amount(row, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "Rollbacked")
}

/// The coordinator is killed between phase one and the decision, which is commit.
pub(super) fn before_commit(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = begin_with_branch(&buyer, row)?;
    stage.coordinator().kill()?;
    stage.coordinator().restart()?;
    until_known(&buyer, &xid)?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    stage.until_no_undo_rows(&xid)?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_status(&xid, "Committed")
}

/// The coordinator is killed between the decision, which is rollback, and phase two.
pub(super) fn after_rollback(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let xid = decide_without_phase_two(stage, row, |desk| desk.tell("rollback").map(drop))?;
    ensure!(stage.amount(row)? == AMOUNT - 1, "rolled back without a reason");
    stage.shop().go_on()?;
    stage.until_amount(row, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "Rollbacked")
}

/// The coordinator is killed between the decision, which is commit, and phase two.
pub(super) fn after_commit(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let xid = decide_without_phase_two(stage, row, |desk| {
        same("the end", &desk.tell("commit")?, &"Committed".to_owned())
    })?;
    stage.shop().go_on()?;
    stage.until_no_undo_rows(&xid)?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_status(&xid, "Committed")
}

/// The one service with the resource stands still from phase one on, so that the coordinator that
/// decides cannot have done phase two when it is killed. It still stands still at the end.
fn decide_without_phase_two(
    stage: &TestBed,
    row: u32,
    decide: impl FnOnce(&Actor<'_>) -> Result<()>,
) -> Result<String> {
    let (desk, buyer) = (stage.desk(), stage.shop().actor());
    let xid = desk.tell_until_done(BEGIN)?;
    buyer.join(&xid)?;
    buyer.tell_until_done(&format!("at {}", take_one(row)))?;
    buyer.leave()?;
    stage.shop().pause()?;
    decide(&desk)?;
    stage.coordinator().kill()?;
    same("undo rows before phase two", &stage.undo_rows(&xid)?, &"1".to_owned())?;
    stage.coordinator().restart()?;
    Ok(xid)
}

/// A client whose line was cut before the decision gets the call of phase two when it has connected
/// again.
pub(super) fn reconnect(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let (desk, buyer) = (stage.desk(), stage.shop().actor());
    let xid = desk.tell_until_done(BEGIN)?;
    buyer.join(&xid)?;
    buyer.tell_until_done(&format!("at {}", take_one(row)))?;
    buyer.leave()?;
    stage.line().cut()?;
    desk.tell("rollback")?;
    same("the amount while cut off", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.line().mend()?;
    stage.until_amount(row, AMOUNT)?;
    stage.until_no_undo_rows(&xid)?;
    stage.until_status(&xid, "Rollbacked")
}
