//! Branches under a fence on a model database: the steps of `tcc/resource.rs`, `tcc/phase_two.rs`
//! and `fence/local.rs`, with the product's decision table.
//!
//! Not modelled: time limits, the repetition of a transaction that the database aborted in favour
//! of another (the coordinator's next attempt repeats it), and the removal of old rows.

use std::sync::Arc;
use std::time::Duration;

use handfast::Error;
use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::{
    self, BranchOutcome, Decision, Done, PhaseOneOutcome, PhaseTwoBranch, PhaseTwoCall, Refused,
    Retryable,
};
use handfast_rm_core::fence::{FenceRefusal, Operation, Pass};

use super::ClientProcess;
use super::at::{BranchError, parse_xid};
use super::phase_two::{branch_key, branch_outcome};
use crate::model::database::{Database, DatabaseError};
use crate::model::values::{RowVersion, UndoKey};
use crate::workload::edit::Edit;
use crate::workload::points::{PointsChange, TccTry, tcc_resource_id};

/// Why an operation under a fence failed.
#[derive(Debug)]
pub(super) enum OperationError {
    Database(DatabaseError),
    Fence(FenceRefusal),
    /// The service refused.
    Refused,
}

impl From<DatabaseError> for OperationError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl From<OperationError> for BranchError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Database(error) => Self::Database(error),
            OperationError::Fence(refusal) => Self::Fence(refusal),
            OperationError::Refused => Self::Refused,
        }
    }
}

impl ClientProcess {
    /// Registers a branch with its input, then runs its try.
    ///
    /// # Errors
    /// If the try did not take effect, or may have: the caller must roll the global back.
    pub(super) async fn run_try(
        self: &Arc<Self>,
        xid: &str,
        wanted: TccTry,
    ) -> Result<(), BranchError> {
        let database = Arc::clone(&self.installation.databases[wanted.database]);
        let id = BranchId(self.world.between(1, i64::MAX.unsigned_abs()));
        let key = (parse_xid(xid), id);
        let request = v1::RegisterBranchRequest {
            xid: xid.to_owned(),
            branch_id: id.0,
            resource_id: tcc_resource_id(database.index),
            mode: v1::Mode::Tcc.into(),
            application_data: wanted.change.to_bytes(),
            ..v1::RegisterBranchRequest::default()
        };
        let registered = self
            .request("register_branch", ClientBody::RegisterBranch(request), Duration::ZERO)
            .await;
        if let Err(error) = registered {
            // Without a reply the branch may be registered, and must not be confirmed then.
            if !matches!(error, Error::Rejected(_)) {
                drop(self.report_branch(xid, id, PhaseOneOutcome::Unknown).await);
            }
            return Err(BranchError::Coordinator(error));
        }
        let edits = wanted.change.edits(Operation::Try);
        let tried = run_fenced(&database, key, Operation::Try, &edits, wanted.refuses).await;
        self.world.log(self.owner(), || format!("try {}/{id}: {tried:?}", key.0));
        let error = match tried {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let outcome = match error {
            // This may have been a COMMIT without an answer.
            OperationError::Database(_) => PhaseOneOutcome::Unknown,
            OperationError::Fence(_) | OperationError::Refused => PhaseOneOutcome::Failed,
        };
        drop(self.report_branch(xid, id, outcome).await);
        Err(error.into())
    }

    /// Confirms or cancels branches, one after the other.
    pub(super) async fn finish_tcc_branches(
        self: &Arc<Self>,
        database: &Arc<Database>,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let operation = match decision {
            Decision::Commit => Operation::Confirm,
            Decision::RollBack | Decision::Unspecified => Operation::Cancel,
        };
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = self.finish_tcc_branch(database, branch, operation).await;
            outcomes.push(branch_outcome(branch, decision, result));
        }
        outcomes
    }

    async fn finish_tcc_branch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        branch: &PhaseTwoBranch,
        operation: Operation,
    ) -> Outcome {
        let Some(change) = PointsChange::from_bytes(&branch.application_data) else {
            let what = format!("{}/{} came without its input", branch.xid, branch.branch_id);
            self.judge.report("total", what);
            return Outcome::Retryable(Retryable { error: "no input".to_owned() });
        };
        let key = branch_key(branch);
        let ended = run_fenced(database, key, operation, &change.edits(operation), false).await;
        self.world.log(self.owner(), || format!("{operation} {}/{}: {ended:?}", key.0, key.1));
        match ended {
            Ok(_) => Outcome::Done(Done {}),
            Err(error @ OperationError::Fence(FenceRefusal::Contradicted))
                if operation == Operation::Cancel =>
            {
                Outcome::Refused(Refused { error: format!("{error:?}"), ..Refused::default() })
            }
            Err(error) => Outcome::Retryable(Retryable { error: format!("{error:?}") }),
        }
    }
}

/// Runs one operation in one local transaction, with its fence first.
pub(super) async fn run_fenced(
    database: &Arc<Database>,
    key: UndoKey,
    operation: Operation,
    edits: &[Edit],
    refuses: bool,
) -> Result<Pass, OperationError> {
    let local = database.begin().await?;
    // The lock on its fence makes an operation wait for another one of its branch.
    let pass = match local.advance_fence(key, operation).await? {
        Ok(pass) => pass,
        Err(refusal) => {
            local.roll_back().await?;
            return Err(OperationError::Fence(refusal));
        }
    };
    if pass == Pass::Run {
        for edit in edits {
            let before = local.lock_row(edit.row).await?;
            let after = RowVersion { value: before.value + edit.delta, writer: None };
            local.update(edit.row, after).await?;
        }
        // The fence goes back with the edits, so that the operation may come again.
        if refuses {
            local.roll_back().await?;
            return Err(OperationError::Refused);
        }
    }
    local.commit().await?;
    Ok(pass)
}
