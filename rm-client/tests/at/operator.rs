//! The operator's view of a stage's globals, and the operator's actions on them.

use std::sync::Arc;

use handfast::{Global, GlobalStatus, Xid};
use handfast_core::{
    BranchId, BranchState, Command, DirtyRow, OperatorAction, RefusedRows, Resolution, RowChange,
    RowStanding,
};

use super::{Stage, TestDatabase};

/// A branch that waits for an operator.
pub(crate) struct Refused {
    pub(crate) xid: Xid,
    pub(crate) branch: BranchId,
    pub(crate) error: String,
    pub(crate) rows: Arc<RefusedRows>,
}

impl Refused {
    /// Returns each listed row of the branch: key, standing, and what `restore_clean` and
    /// `force_before` would do to it. Listed rows of other transactions are never changed.
    pub(crate) fn shown(&self) -> Vec<(&str, RowStanding, RowChange, RowChange)> {
        let row = |row: &DirtyRow| (row.standing, row.on_restore_clean, row.on_force_before);
        let of_branch = self.rows.listed.iter().filter(|row| row.on_restore_clean.is_some());
        let listed = of_branch.map(|it| (it.key.as_str(), row(it)));
        let known = listed
            .map(|(key, (standing, clean, force))| (key, standing, clean.unwrap(), force.unwrap()));
        known.collect()
    }

    /// Returns the value of a column before, after and at present.
    pub(crate) fn images(&self, key: &str, column: &str) -> [Option<&str>; 3] {
        let row = self.rows.listed.iter().find(|row| row.key == key).unwrap();
        let column = row.columns.iter().find(|known| known.name == column).unwrap();
        [&column.before, &column.after, &column.current].map(|image| image.as_deref())
    }
}

impl<DB: TestDatabase> Stage<DB> {
    /// Rolls a global of one branch back, and expects the branch to be refused.
    pub(crate) async fn refused(&self, global: Global) -> Refused {
        let xid = global.xid().clone();
        // The rollback returns an error, since it needs an operator. That is expected here.
        let _ = global.rollback("test").await;
        self.await_status(&xid, |status| matches!(status, GlobalStatus::NeedsOperator(_))).await;
        self.refusal(&xid).await
    }

    pub(crate) async fn refusal(&self, xid: &Xid) -> Refused {
        let id = number(xid);
        let view = self.tc.engine().view(move |coordinator| coordinator.global(id)).await.unwrap();
        let branch = view.unwrap().branches.remove(0);
        let BranchState::Refused(error, rows) = branch.state else { unreachable!("{branch:?}") };
        Refused { xid: xid.clone(), branch: branch.id, error: error.to_string(), rows }
    }

    /// Answers for the operator, and waits until the global has the expected status.
    pub(crate) async fn resolve(
        &self,
        refused: &Refused,
        resolution: Resolution,
        expected: impl Fn(GlobalStatus) -> bool,
    ) {
        let action = OperatorAction::Resolve { branch: refused.branch, resolution };
        let xid = number(&refused.xid);
        let command = Command::Operate { xid, action, operator: "tester".into() };
        self.tc.engine().call(command).await.unwrap();
        self.await_status(&refused.xid, expected).await;
    }

    /// Answers for the operator, and waits until the global is rolled back.
    pub(crate) async fn end(&self, refused: &Refused, resolution: Resolution) {
        let is_over = |status| matches!(status, GlobalStatus::RolledBack(_));
        self.resolve(refused, resolution, is_over).await;
    }
}

pub(crate) fn number(xid: &Xid) -> handfast_core::Xid {
    let (_, number) = xid.as_str().rsplit_once(':').unwrap();
    handfast_core::Xid(number.parse().unwrap())
}
