//! Looks for branches of this node that were left prepared, at start and on a timer.
//!
//! Phase two finishes the branches that the coordinator knows. Others can be left over: a PREPARE
//! may have come after its branch had answered, or the coordinator may have lost its memory. Names
//! that are not of this node are never touched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::{Decision, GetStatusRequest};
use handfast_rm_core::GlobalStatus;
use handfast_rm_core::two_phase::{BranchName, SweepAction, TwoPhaseVerdict, of_sweep};
use tokio::time::Instant;

use super::database::XaDatabase;
use super::error::XaError;
use super::finish::Finisher;
use super::state::XaState;

/// How many branches one sweep looks at (BOUNDED); those that it finishes make room for others.
pub(super) const BRANCHES_MAX: usize = 1_000;
/// How often a held session is checked until its limit.
const LOOKS_PER_HOLD: u32 = 4;

/// How long a sweep may take: a database that went away without a word never answers.
const SWEEP_MAX: Duration = Duration::from_secs(300);

/// The result of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Branches committed, as decided.
    pub committed: usize,
    /// Branches rolled back, as decided, or because the coordinator does not know them.
    pub rolled_back: usize,
    /// Branches left: undecided, too young to be distinguished from a mistake, or in use by a
    /// session.
    pub left: usize,
}

/// Sweeps, and closes sessions that were held too long, until the resource is gone.
pub(super) fn start<DB: XaDatabase>(shared: &Arc<XaState<DB>>) {
    let (sweeps, every) = (Arc::downgrade(shared), shared.sweeper.every);
    tokio::spawn(async move {
        while let Some(shared) = sweeps.upgrade() {
            match tokio::time::timeout(SWEEP_MAX, sweep(&shared)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "prepared branches not swept, to be tried again");
                }
                Err(_) => tracing::warn!("a sweep took too long, to be tried again"),
            }
            // A task that kept this while it sleeps would keep the resource alive.
            drop(shared);
            tokio::time::sleep(every).await;
        }
    });
    let (holds, limit) = (Arc::downgrade(shared), shared.held.limit);
    tokio::spawn(async move {
        let look_every = (limit / LOOKS_PER_HOLD).max(Duration::from_millis(1));
        while let Some(shared) = holds.upgrade() {
            shared.held.close_overdue(Instant::now());
            drop(shared);
            tokio::time::sleep(look_every).await;
        }
    });
}

/// One sweep.
pub(super) async fn sweep<DB: XaDatabase>(shared: &Arc<XaState<DB>>) -> Result<Swept, XaError> {
    let mut unknown_since = shared.sweeper.unknown_since.lock().await;
    let mut session = shared.session_for_decisions().await?;
    let found = DB::prepared(&mut session, &shared.node, BRANCHES_MAX).await?;
    // The pool gets it back before the branches are finished, which takes sessions of its own.
    session.mark_clean();
    drop(session);
    // A branch that is not prepared any more is forgotten, so that the map stays small (BOUNDED).
    unknown_since.retain(|name, _| found.contains(name));
    let mut finisher = Finisher::new(Arc::clone(shared));
    let mut swept = Swept::default();
    for name in found {
        match judge(shared, &mut unknown_since, &name).await? {
            SweepAction::Leave => swept.left += 1,
            SweepAction::Finish(decision) => {
                let finished = finisher.finish(decision, &name, None).await;
                count(&mut swept, decision, finished.verdict);
                tracing::info!(
                    xid = %name.xid, branch = name.branch, ?decision,
                    verdict = ?finished.verdict, said = finished.message, "prepared branch swept"
                );
            }
        }
    }
    Ok(swept)
}

async fn judge<DB: XaDatabase>(
    shared: &XaState<DB>,
    unknown_since: &mut HashMap<BranchName, Instant>,
    name: &BranchName,
) -> Result<SweepAction, XaError> {
    let request = GetStatusRequest { xid: name.xid.as_str().to_owned() };
    let reply = shared.coordinator.get_status(request).await?;
    let status = GlobalStatus::from_wire(reply.status(), reply.rollback_reason());
    let unknown_for = if status == GlobalStatus::Unknown {
        unknown_since.entry(name.clone()).or_insert_with(Instant::now).elapsed()
    } else {
        unknown_since.remove(name);
        Duration::ZERO
    };
    Ok(of_sweep(status, unknown_for, shared.sweeper.orphan_after))
}

fn count(swept: &mut Swept, decision: Decision, verdict: TwoPhaseVerdict) {
    match (verdict, decision) {
        (TwoPhaseVerdict::Done, Decision::Commit) => swept.committed += 1,
        (TwoPhaseVerdict::Done, Decision::RollBack) => swept.rolled_back += 1,
        (TwoPhaseVerdict::Done, Decision::Unspecified)
        | (TwoPhaseVerdict::Again | TwoPhaseVerdict::Against, _) => {
            swept.left += 1;
        }
    }
}
