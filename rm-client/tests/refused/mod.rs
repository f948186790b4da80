//! One file for each reason.

mod lasting;
mod referring;
mod referring_postgres;

use handfast::{Global, GlobalStatus, Xid};
use handfast_core::{BranchState, Command, DirtyRow, OperatorAction};

use crate::at::{Stage, TestDatabase};

/// Rolls a global back, waits until it needs an operator, and returns the error and the rows shown
/// to the operator.
async fn refusal<DB: TestDatabase>(stage: &Stage<DB>, global: Global) -> (String, Vec<DirtyRow>) {
    let xid = global.xid().clone();
    // The rollback returns an error, since it needs an operator. That is expected here.
    let _ = global.rollback("test").await;
    let asks = |status| matches!(status, GlobalStatus::NeedsOperator(_));
    let ends = |status| asks(status) || matches!(status, GlobalStatus::RolledBack(_));
    assert!(asks(stage.await_status(&xid, ends).await), "a person is asked");
    let xid = number(&xid);
    let view = stage.tc.engine().view(move |coordinator| coordinator.global(xid)).await.unwrap();
    let branch = view.unwrap().branches.remove(0);
    let BranchState::Refused(error, rows) = branch.state else { unreachable!("{branch:?}") };
    (error.to_string(), rows.listed.to_vec())
}

/// Makes the coordinator try the rollback again, and waits for its end.
async fn retry<DB: TestDatabase>(stage: &Stage<DB>, xid: &Xid) {
    let (action, operator) = (OperatorAction::Retry, "tester".into());
    stage.tc.engine().call(Command::Operate { xid: number(xid), action, operator }).await.unwrap();
    stage.await_status(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
}

fn number(xid: &Xid) -> handfast_core::Xid {
    let (_, number) = xid.as_str().rsplit_once(':').unwrap();
    handfast_core::Xid(number.parse().unwrap())
}
