//! Branches that a decision asks nothing of, so that no process of theirs need be there.
//!
//! An annotated step of a saga has done everything when it is to be committed. Who could be asked
//! for it may be long gone, and its global would stay unfinished for as long. BOUNDED: each branch
//! that is owed is here at most once.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use handfast_core::{BranchId, Decision, Effect, Mode, PhaseTwoCall, PhaseTwoOutcome, What, Xid};
use tokio::sync::Notify;

use super::answer::SAGA;
use crate::dispatch::{Dispatcher, PhaseTwo};
use crate::engine::EngineHandle;

/// Stands before the dispatcher, and keeps from it what nobody is to be asked for.
#[derive(Debug)]
pub(crate) struct Uncalled {
    dispatcher: Dispatcher,
    ended: Mutex<BTreeSet<(Xid, BranchId)>>,
    arrived: Notify,
}

impl Uncalled {
    pub(crate) fn before(dispatcher: Dispatcher) -> Self {
        Self { dispatcher, ended: Mutex::default(), arrived: Notify::new() }
    }

    /// Tells the engine of them, for as long as it is polled.
    pub(crate) async fn tell(&self, engine: &EngineHandle) {
        loop {
            self.arrived.notified().await;
            let ended = std::mem::take(&mut *self.lock());
            // When the engine ends, they are owed again by the next leader (EFFECTS-REPEAT).
            if let Err(error) = engine.tell(ended.into_iter().map(done).collect()).await {
                tracing::debug!(%error, "branches that are asked nothing not recorded");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(Xid, BranchId)>> {
        self.ended.lock().expect("no holder of the lock of ended branches panics")
    }
}

impl PhaseTwo for Uncalled {
    fn take(&self, mut effects: Vec<Effect>) {
        let ended: Vec<_> = effects.iter().filter_map(uncalled).collect();
        if !ended.is_empty() {
            effects.retain(|effect| uncalled(effect).is_none());
            self.lock().extend(ended);
            self.arrived.notify_one();
        }
        self.dispatcher.take(effects);
    }

    fn clear(&self) {
        self.lock().clear();
        self.dispatcher.clear();
    }
}

/// The branch of a call that asks nothing. Outside of the coordinator's own sagas, whose calls are
/// of steps, only clients of Seata have branches of this mode.
fn uncalled(effect: &Effect) -> Option<(Xid, BranchId)> {
    let Effect::PhaseTwo(PhaseTwoCall { xid, branch, mode, decision, step, .. }) = effect else {
        return None;
    };
    let is_annotated = *mode == Mode::Saga && step.is_none() && *branch != SAGA;
    (is_annotated && *decision == Decision::Commit).then_some((*xid, *branch))
}

fn done((xid, branch): (Xid, BranchId)) -> What {
    let (decision, outcome) = (Decision::Commit, PhaseTwoOutcome::Done);
    What::FinishPhaseTwo { xid, branch, decision, outcome }
}
