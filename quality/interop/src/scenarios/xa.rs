//! XA: the database holds the change back until phase two.

use anyhow::{Result, ensure};

use crate::service::Service;
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

/// How often several processes take part in one global. Phase two asks a resource's processes in
/// turn, so in a single round the right one could come first by chance.
const ROUNDS: usize = 4;

/// The change is invisible before the commit, and visible when the client gets its answer.
pub(super) fn commit(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(120_000)?;
    buyer.tell(&format!("xa {}", take_one(row)))?;
    same("the amount in phase one", &stage.amount(row)?, &AMOUNT)?;
    same("the end", &buyer.tell("commit")?, &"Committed".to_owned())?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))?;
    stage.until_status(&xid, "Committed")
}

/// The change is never visible, and the rows are unlocked.
pub(super) fn roll_back(stage: &TestBed) -> Result<()> {
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

/// The branch is rolled back at the deadline, and the rows are unlocked.
pub(super) fn timeout(stage: &TestBed) -> Result<()> {
    let row = stage.new_row()?;
    let buyer = stage.shop().actor();
    let xid = buyer.begin(1500)?;
    buyer.tell(&format!("xa {}", take_one(row)))?;
    stage.until_status(&xid, "TimeoutRollbacked")?;
    ensure!(buyer.tell("commit")? != "Committed", "a late commit is answered as committed");
    stage.plain(&take_one(row))?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))
}

/// Each service has a branch of every global on one database, where no process can end a branch
/// that another one has prepared.
pub(super) fn four_services(stage: &TestBed) -> Result<()> {
    let services = ["business", "order", "storage", "account"]
        .map(|application| stage.service_of(application))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let services: Vec<&Service> = services.iter().collect();
    (0..ROUNDS).try_for_each(|_| end_together(stage, &services))
}

/// Two processes of one application. When one is killed, the other ends its prepared branch.
pub(super) fn two_replicas(stage: &TestBed) -> Result<()> {
    let second = stage.second_shop()?;
    (0..ROUNDS).try_for_each(|_| end_together(stage, &[stage.shop(), &second]))?;
    let row = stage.new_row()?;
    let (desk, buyer) = (stage.desk(), second.actor());
    let xid = desk.begin(120_000)?;
    buyer.join(&xid)?;
    buyer.tell(&format!("xa {}", take_one(row)))?;
    second.kill()?;
    desk.tell("commit")?;
    stage.until_status(&xid, "Committed")?;
    same("the amount", &stage.amount(row)?, &(AMOUNT - 1))
}

/// A commit and a rollback with a branch in each service. None of them is asked about a branch that
/// another one has.
fn end_together(stage: &TestBed, services: &[&Service]) -> Result<()> {
    for (end, told, left) in
        [("commit", "Committed", AMOUNT - 1), ("rollback", "RollbackDone", AMOUNT)]
    {
        let rows = services.iter().map(|_| stage.new_row()).collect::<Result<Vec<_>>>()?;
        let desk = stage.desk();
        let xid = desk.begin(120_000)?;
        for (service, row) in services.iter().zip(&rows) {
            let buyer = service.actor();
            buyer.join(&xid)?;
            buyer.tell(&format!("xa {}", take_one(*row)))?;
        }
        same("the end", &desk.tell(end)?, &told.to_owned())?;
        for row in rows {
            same("the amount", &stage.amount(row)?, &left)?;
        }
        let seen = stage.coordinator().transaction(&xid)?;
        let attempts = seen.matches("\"attempts\":0").count();
        ensure!(attempts == services.len(), "a branch was offered to others: {seen}");
    }
    Ok(())
}
