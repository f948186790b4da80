//! Branches for which phase two is a no-op, so that it completes without any process.
//!
//! An annotated step of a saga has nothing left to do when it is committed. Neither has a Java
//! client whose rows an operator accepts as they are. The processes of such a branch may be long
//! gone, and the global would stay unfinished until one came back. BOUNDED: each branch that is
//! owed is here at most once.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use handfast_core::{BranchId, Command, Decision, Effect, Mode, PhaseTwoOutcome, Resolution, Xid};
use tokio::sync::Notify;

use super::request::SAGA;
use super::resource::JDBC;
use crate::dispatch::{Dispatcher, EffectSink};
use crate::engine::EngineHandle;

type NoOpBranch = (Xid, BranchId, Decision);

/// Filters the effects for the dispatcher: completes no-op branches itself, and passes on the rest.
#[derive(Debug)]
pub(crate) struct NoOpBranches {
    dispatcher: Dispatcher,
    ended: Mutex<BTreeSet<NoOpBranch>>,
    arrived: Notify,
}

impl NoOpBranches {
    pub(crate) fn new(dispatcher: Dispatcher) -> Self {
        Self { dispatcher, ended: Mutex::default(), arrived: Notify::new() }
    }

    /// Reports the completed branches to the engine, for as long as it is polled.
    pub(crate) async fn report(&self, engine: &EngineHandle) {
        loop {
            self.arrived.notified().await;
            let ended = std::mem::take(&mut *self.lock());
            // If the engine has ended, the next leader owes them again (EFFECTS-REPEAT).
            if let Err(error) = engine.notify(ended.into_iter().map(done).collect()).await {
                tracing::debug!(%error, "no-op branches are not recorded");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<NoOpBranch>> {
        self.ended.lock().expect("no holder of the lock of ended branches panics")
    }
}

impl EffectSink for NoOpBranches {
    fn take(&self, mut effects: Vec<Effect>) {
        let ended: Vec<_> = effects.iter().filter_map(no_op_branch).collect();
        if !ended.is_empty() {
            effects.retain(|effect| no_op_branch(effect).is_none());
            // Left to `report`: the engine's task, which runs this, must not wait for its own
            // queue.
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

/// Returns the branch of a call that is a no-op.
fn no_op_branch(effect: &Effect) -> Option<NoOpBranch> {
    let Effect::PhaseTwo(call) = effect else { return None };
    let asks_nothing = match call.mode {
        // The calls of the coordinator's own sagas have a step. All other branches of this mode are
        // of Seata clients.
        Mode::Saga => {
            call.step.is_none() && call.branch != SAGA && call.decision == Decision::Commit
        }
        // A native client never names a database like this. It must be called: it deletes its undo
        // log in this case.
        Mode::At | Mode::Xa => {
            call.resource.starts_with(JDBC) && call.resolution == Some(Resolution::AcceptCurrent)
        }
        Mode::Tcc | Mode::TwoPhase => false,
    };
    asks_nothing.then_some((call.xid, call.branch, call.decision))
}

fn done((xid, branch, decision): NoOpBranch) -> Command {
    Command::FinishPhaseTwo { xid, branch, decision, outcome: PhaseTwoOutcome::Done }
}
