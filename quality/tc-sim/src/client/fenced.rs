//! Branches under a fence on a model database: the steps of `tcc/resource.rs`, `tcc/phase_two.rs`
//! and `fence/local.rs`, with the product's decision table.
//!
//! Left out: time limits, repeating what the database ended in favour of others (the coordinator's
//! next attempt does it), and the removal of old rows.

use std::sync::Arc;
use std::time::Duration;

use handfast::Error;
use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{
    self, BranchOutcome, Decision, Done, PhaseOneOutcome, PhaseTwoBranch, PhaseTwoCall, Refused,
    Retryable,
};
use handfast_rm_core::fence::{Operation, Pass, Refusal};

use super::at::number_of;
use super::phase_two::{key_of, outcome};
use super::{BranchError, ClientProcess, Edit};
use crate::database::{Cell, Database, DatabaseError, UndoKey};
use crate::points::Points;

/// A try that an order asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    pub(crate) database: usize,
    pub(crate) points: Points,
    /// The business says no, after it has written.
    pub(crate) refuses: bool,
}

/// How an operation under the fence did not come to its end.
#[derive(Debug)]
pub(super) enum NotDone {
    Database(DatabaseError),
    Fence(Refusal),
    Business,
}

impl From<DatabaseError> for NotDone {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl From<NotDone> for BranchError {
    fn from(error: NotDone) -> Self {
        match error {
            NotDone::Database(error) => Self::Database(error),
            NotDone::Fence(refusal) => Self::Fence(refusal),
            NotDone::Business => Self::Business,
        }
    }
}

/// The name of the points of a database in TCC mode, as the coordinator knows it.
pub(super) fn tcc_resource_of(database: &Database) -> String {
    format!("points-{}", database.index)
}

impl ClientProcess {
    /// Registers a branch with its input, then runs its try.
    ///
    /// # Errors
    /// The try did not take effect then, or will be cancelled.
    pub(crate) async fn run_try(
        self: &Arc<Self>,
        xid: &str,
        wanted: Try,
    ) -> Result<(), BranchError> {
        let database = Arc::clone(&self.cluster.databases[wanted.database]);
        let id = BranchId(self.world.between(1, i64::MAX.unsigned_abs()));
        let key = (number_of(xid), id);
        let request = v1::RegisterBranchRequest {
            xid: xid.to_owned(),
            branch_id: id.0,
            resource_id: tcc_resource_of(&database),
            mode: v1::Mode::Tcc.into(),
            application_data: wanted.points.to_bytes(),
            ..v1::RegisterBranchRequest::default()
        };
        let registered =
            self.ask("register_branch", Ask::RegisterBranch(request), Duration::ZERO).await;
        if let Err(error) = registered {
            // Without an answer it may be registered, and then nothing may confirm it.
            if !matches!(error, Error::Rejected(_)) {
                self.report_branch(xid, id, PhaseOneOutcome::Unknown).await;
            }
            return Err(BranchError::Coordinator(error));
        }
        let edits = wanted.points.edits(Operation::Try);
        let tried = fenced(&database, key, Operation::Try, &edits, wanted.refuses).await;
        self.world.log(self.owner(), || format!("try {}/{id}: {tried:?}", key.0));
        let error = match tried {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let what = match error {
            // A COMMIT that had no answer looks like this.
            NotDone::Database(_) => PhaseOneOutcome::Unknown,
            NotDone::Fence(_) | NotDone::Business => PhaseOneOutcome::Failed,
        };
        self.report_branch(xid, id, what).await;
        Err(error.into())
    }

    /// Confirms or cancels, one branch after the other.
    pub(super) async fn finish_tried(
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
            let result = self.finish_one(database, branch, operation).await;
            outcomes.push(outcome(branch, decision, result));
        }
        outcomes
    }

    async fn finish_one(
        self: &Arc<Self>,
        database: &Arc<Database>,
        branch: &PhaseTwoBranch,
        operation: Operation,
    ) -> Outcome {
        let Some(points) = Points::from_bytes(&branch.application_data) else {
            let what = format!("{}/{} came without its input", branch.xid, branch.branch_id);
            self.world.violate("total", what);
            return Outcome::Retryable(Retryable { error: "no input".to_owned() });
        };
        let key = key_of(branch);
        let ended = fenced(database, key, operation, &points.edits(operation), false).await;
        self.world.log(self.owner(), || format!("{operation} {}/{}: {ended:?}", key.0, key.1));
        match ended {
            Ok(_) => Outcome::Done(Done {}),
            Err(error @ NotDone::Fence(Refusal::Contradicted))
                if operation == Operation::Cancel =>
            {
                Outcome::Refused(Refused { error: format!("{error:?}"), ..Refused::default() })
            }
            Err(error) => Outcome::Retryable(Retryable { error: format!("{error:?}") }),
        }
    }
}

/// One operation in one local transaction, with its fence first.
pub(super) async fn fenced(
    database: &Arc<Database>,
    key: UndoKey,
    operation: Operation,
    edits: &[Edit],
    refuses: bool,
) -> Result<Pass, NotDone> {
    let local = database.begin().await?;
    let pass = match local.advance(key, operation).await? {
        Ok(pass) => pass,
        Err(refusal) => {
            local.roll_back().await?;
            return Err(NotDone::Fence(refusal));
        }
    };
    if pass == Pass::Run {
        for edit in edits {
            let before = local.lock_row(edit.row).await?;
            let after = Cell { value: before.value + edit.delta, writer: None };
            local.update(edit.row, after).await?;
        }
        if refuses {
            local.roll_back().await?;
            return Err(NotDone::Business);
        }
    }
    local.commit().await?;
    Ok(pass)
}
