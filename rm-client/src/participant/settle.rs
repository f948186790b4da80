//! Asks the coordinator for the decisions of prepared branches that have received none.
//!
//! It never decides alone: a branch that the coordinator does not know is rolled back only under
//! the rule of `twophase::verdict`. A branch is registered before it is prepared, and the
//! coordinator forgets a global only when every branch has answered. So a branch that it does not
//! know was rolled back, and its `prepare` came late.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::{Decision, GetStatusRequest};
use handfast_rm_core::GlobalStatus;
use handfast_rm_core::two_phase::{SweepAction, of_sweep};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::resource::Shared;
use super::{Branch, Participant, ParticipantError};
use crate::limit;
use crate::twophase::Swept;
use crate::xid::Xid;

/// How many branches one settling handles (BOUNDED). The branches that it settles make room for
/// others the next time.
const BRANCHES_MAX: usize = 1_000;

/// How long one settling by the timer may take. Each answer of the participant has a limit of its
/// own.
const SETTLE_MAX: Duration = Duration::from_secs(300);

/// The pace of settling, and the branches that the coordinator did not know.
#[derive(Debug)]
pub(super) struct Settler {
    every: Duration,
    orphan_after: Duration,
    /// Since when the coordinator has not known these branches. The lock also keeps settlings from
    /// running at the same time.
    unknown_since: Mutex<HashMap<(Xid, u64), Instant>>,
}

impl Settler {
    pub(super) fn new(every: Duration, orphan_after: Duration) -> Self {
        Self { every, orphan_after, unknown_since: Mutex::default() }
    }
}

/// Settles at intervals until the participant is dropped.
pub(super) fn start<P: Participant>(shared: &Arc<Shared<P>>) {
    let (asking, every) = (Arc::downgrade(shared), shared.settler.every);
    tokio::spawn(async move {
        while let Some(shared) = asking.upgrade() {
            let participant = &shared.name;
            match tokio::time::timeout(SETTLE_MAX, settle(&shared)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(participant, %error, "not settled, to be tried again");
                }
                Err(_) => tracing::warn!(participant, "settling took too long, to be tried again"),
            }
            // A task that kept this while it sleeps would keep the participant alive.
            drop(shared);
            tokio::time::sleep(every).await;
        }
    });
}

/// Asks once for the decisions of all prepared branches, and executes them.
pub(super) async fn settle<P: Participant>(shared: &Shared<P>) -> Result<Swept, ParticipantError> {
    let mut unknown_since = shared.settler.unknown_since.lock().await;
    let participant = &shared.participant;
    let mut prepared = answer::<P, _, _>(participant.prepared())
        .await
        .map_err(|reason| ParticipantError::Participant { reason })?;
    prepared.truncate(BRANCHES_MAX);
    let is_prepared = |(xid, id): &(Xid, u64)| {
        prepared.iter().any(|branch| branch.xid == *xid && branch.id == *id)
    };
    // A branch that is not prepared any more is forgotten, so that the map stays small (BOUNDED).
    unknown_since.retain(|key, _| is_prepared(key));
    let mut swept = Swept::default();
    for branch in &prepared {
        let decided = judge(shared, &mut unknown_since, branch).await?;
        let is_executed = match decided {
            SweepAction::Finish(Decision::Commit) => {
                is_done(branch, answer::<P, _, _>(participant.commit(branch)).await)
            }
            SweepAction::Finish(Decision::RollBack) => {
                is_done(branch, answer::<P, _, _>(participant.roll_back(branch)).await)
            }
            SweepAction::Finish(Decision::Unspecified) | SweepAction::Leave => false,
        };
        let count = match decided {
            SweepAction::Finish(Decision::Commit) if is_executed => &mut swept.committed,
            SweepAction::Finish(Decision::RollBack) if is_executed => &mut swept.rolled_back,
            SweepAction::Finish(_) | SweepAction::Leave => &mut swept.left,
        };
        *count += 1;
    }
    Ok(swept)
}

async fn judge<P: Participant>(
    shared: &Shared<P>,
    unknown_since: &mut HashMap<(Xid, u64), Instant>,
    branch: &Branch<P::Input>,
) -> Result<SweepAction, ParticipantError> {
    let request = GetStatusRequest { xid: branch.xid.as_str().to_owned() };
    let reply = shared.coordinator.get_status(request).await?;
    let status = GlobalStatus::from_wire(reply.status(), reply.rollback_reason());
    let key = (branch.xid.clone(), branch.id);
    let unknown_for = if status == GlobalStatus::Unknown {
        unknown_since.entry(key).or_insert_with(Instant::now).elapsed()
    } else {
        unknown_since.remove(&key);
        Duration::ZERO
    };
    Ok(of_sweep(status, unknown_for, shared.settler.orphan_after))
}

/// Waits for a participant's answer within its time limit. Returns the answer, or why there is
/// none.
async fn answer<P: Participant, T, E: Display>(
    question: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    let answered = limit::within(P::TIME_LIMIT, question).await;
    answered.map_err(|cut_off| cut_off.to_string())?.map_err(|error| error.to_string())
}

/// Returns whether a decision was executed, and logs the error if not.
fn is_done<Input>(branch: &Branch<Input>, ended: Result<(), String>) -> bool {
    if let Err(error) = &ended {
        tracing::warn!(xid = %branch.xid, branch = branch.id, %error, "decision not carried out");
    }
    ended.is_ok()
}
