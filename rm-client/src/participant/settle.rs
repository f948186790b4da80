//! A participant that has prepared and hears nothing asks for the decision.
//!
//! It never decides alone: what the coordinator does not know is rolled back only under the rule of
//! `twophase::verdict`. A branch is registered before it is prepared, and the coordinator forgets a
//! global only when every branch has answered; so one that it does not know was rolled back, and
//! its `prepare` came late.

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

/// How many branches are settled at a time; those that are make room for others (BOUNDED).
const BRANCHES_MAX: usize = 1_000;

/// How long one settling may take, at the timer. Each answer of the participant has its own limit.
const SETTLE_MAX: Duration = Duration::from_secs(300);

/// The pace and the memory of asking.
#[derive(Debug)]
pub(super) struct Settler {
    every: Duration,
    orphan_after: Duration,
    /// Since when the coordinator is known not to know these. One settling at a time.
    unknown_since: Mutex<HashMap<(Xid, u64), Instant>>,
}

impl Settler {
    pub(super) fn new(every: Duration, orphan_after: Duration) -> Self {
        Self { every, orphan_after, unknown_since: Mutex::default() }
    }
}

/// Settles until the participant is gone.
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
            drop(shared);
            tokio::time::sleep(every).await;
        }
    });
}

/// Asks once for everything that is prepared.
pub(super) async fn settle<P: Participant>(shared: &Shared<P>) -> Result<Swept, ParticipantError> {
    let mut unknown_since = shared.settler.unknown_since.lock().await;
    let participant = &shared.participant;
    let mut prepared = answer::<P, _, _>(participant.prepared())
        .await
        .map_err(|reason| ParticipantError::Participant { reason })?;
    prepared.truncate(BRANCHES_MAX);
    let is_there = |(xid, id): &(Xid, u64)| {
        prepared.iter().any(|branch| branch.xid == *xid && branch.id == *id)
    };
    unknown_since.retain(|key, _| is_there(key));
    let mut swept = Swept::default();
    for branch in &prepared {
        let decided = judge(shared, &mut unknown_since, branch).await?;
        let is_ended = match decided {
            SweepAction::Finish(Decision::Commit) => {
                is_done(branch, answer::<P, _, _>(participant.commit(branch)).await)
            }
            SweepAction::Finish(Decision::RollBack) => {
                is_done(branch, answer::<P, _, _>(participant.roll_back(branch)).await)
            }
            SweepAction::Finish(Decision::Unspecified) | SweepAction::Leave => false,
        };
        let count = match decided {
            SweepAction::Finish(Decision::Commit) if is_ended => &mut swept.committed,
            SweepAction::Finish(Decision::RollBack) if is_ended => &mut swept.rolled_back,
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

/// What a participant answers within its limit, or why it does not.
async fn answer<P: Participant, T, E: Display>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    let answered = limit::within(P::TIME_LIMIT, asked).await;
    answered.map_err(|cut_off| cut_off.to_string())?.map_err(|error| error.to_string())
}

/// Whether a decision is carried out; what is in the way is logged.
fn is_done<Input>(branch: &Branch<Input>, ended: Result<(), String>) -> bool {
    if let Err(error) = &ended {
        tracing::warn!(xid = %branch.xid, branch = branch.id, %error, "decision not carried out");
    }
    ended.is_ok()
}
