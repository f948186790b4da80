//! The calls of phase one to the coordinator: registration, lock checks, the report of a rollback.

use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1;

use super::branch::Branch;
use super::row_locks::RowLocks;
use crate::at::crash_point::crash_point;
use crate::at::database::Backend;
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::error::Error;
use crate::last_commit::Known;
use crate::link::OnLost;
use crate::unknown_outcome::{UnknownOutcomeGuard, report_unawaited};

/// Database locks are held while the coordinator is asked to wait.
pub(super) const HOLDING_LOCKS: v1::Holding = v1::Holding::DatabaseLocks;

/// Registers a branch, with a crash point on either side. Returns whether its local commit decides
/// the global.
pub(super) async fn register<DB: Backend>(
    shared: &ResourceState<DB>,
    request: v1::RegisterBranchRequest,
) -> Result<bool, Error> {
    crash_point("before-register");
    let reply = shared.coordinator.register_branch(request).await?;
    crash_point("after-register");
    Ok(reply.decides)
}

/// Whether a request that failed may have arrived all the same.
pub(super) fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::Unanswered { .. })
}

/// Returns the request that registers a branch with rows.
pub(super) fn registration<DB: Backend>(
    shared: &ResourceState<DB>,
    branch: &Branch,
    rows: &RowLocks,
    wait: Duration,
    holding: v1::Holding,
) -> v1::RegisterBranchRequest {
    v1::RegisterBranchRequest {
        xid: branch.xid.to_string(),
        // Drawn by this process, so that a request that is sent again names the same branch.
        branch_id: branch.id,
        resource_id: shared.identity.resource_id.clone(),
        mode: v1::Mode::At.into(),
        rows: rows.to_wire(),
        wait: Some(lock_wait(wait, holding)),
        application_data: Vec::new(),
        // Left empty: the id of the stream counts.
        client_id: String::new(),
        traceparent: String::new(),
        is_last: false,
        may_be_lost: false,
    }
}

/// Waits until no other global than `xid` holds the rows.
pub(super) async fn check_locks<DB: Backend>(
    shared: &ResourceState<DB>,
    xid: &str,
    rows: &RowLocks,
    wait: Duration,
    holding: v1::Holding,
) -> Result<(), AtError> {
    if rows.is_empty() {
        return Ok(());
    }
    let request = v1::CheckLocksRequest {
        xid: xid.to_owned(),
        resource_id: shared.identity.resource_id.clone(),
        rows: rows.to_wire(),
        wait: Some(lock_wait(wait, holding)),
    };
    shared.coordinator.check_locks(request).await?;
    Ok(())
}

fn lock_wait(wait: Duration, holding: v1::Holding) -> v1::LockWait {
    let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    v1::LockWait { timeout_ms, holding: holding.into() }
}

/// Returns a guard for a branch whose COMMIT was not sent, of which the coordinator may know: cut
/// off by a dropped future, the branch does not commit any more.
pub(super) fn failed_if_dropped<DB: Backend>(
    shared: &ResourceState<DB>,
    branch: &Branch,
) -> UnknownOutcomeGuard {
    let failed = v1::PhaseOneOutcome::Failed;
    UnknownOutcomeGuard::new(&shared.coordinator, &branch.xid, branch.id, failed)
}

/// Reports a branch whose COMMIT was not sent, and will not be, without waiting for the answer.
pub(super) fn report_failed_unawaited<DB: Backend>(shared: &ResourceState<DB>, branch: &Branch) {
    let failed = v1::PhaseOneOutcome::Failed;
    report_unawaited(&shared.coordinator, &branch.xid, branch.id, failed);
}

/// Reports a branch whose COMMIT was sent and has no answer, without waiting for that of the
/// report.
pub(super) fn report_in_doubt<DB: Backend>(shared: &ResourceState<DB>, branch: &Branch) {
    let unknown = v1::PhaseOneOutcome::Unknown;
    report_unawaited(&shared.coordinator, &branch.xid, branch.id, unknown);
}

/// Reports a local commit that has decided its global. The answer is not waited for: without the
/// report the coordinator asks the database.
pub(super) fn report_decided<DB: Backend>(shared: &ResourceState<DB>, branch: &Branch) {
    branch.note_last_commit(Known::Committed);
    let on_lost = || -> OnLost {
        let (undo_rows, xid, id) =
            (Arc::clone(&shared.lost_undo_rows), branch.xid.clone(), branch.id);
        Box::new(move || undo_rows.delete_lost(&xid, id))
    };
    let on_lost = branch.may_be_lost.then(on_lost);
    if let Err(error) = shared.coordinator.report_last(&branch.xid, branch.id, on_lost) {
        let (xid, branch) = (&branch.xid, branch.id);
        tracing::warn!(%xid, branch, %error, "committed; the coordinator learns it at the timeout");
    }
}

/// Reports a branch whose local transaction is rolled back for certain: the branch and its locks
/// can go.
pub(super) async fn report_failed<DB: Backend>(shared: &ResourceState<DB>, branch: &Branch) {
    shared.coordinator.report_outcome(&branch.xid, branch.id, v1::PhaseOneOutcome::Failed).await;
}
