//! Branches that a decision asks nothing of, so that no process of theirs need be there.
//!
//! An annotated step of a saga has done everything when it is to be committed, and so has a Java
//! client whose rows an operator accepts as they are. Who could be asked may be long gone, and the
//! global would stay unfinished for as long. BOUNDED: each branch that is owed is here at most
//! once.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use handfast_core::{BranchId, Decision, Effect, Mode, PhaseTwoOutcome, Resolution, What, Xid};
use tokio::sync::Notify;

use super::request::SAGA;
use super::resource::JDBC;
use crate::dispatch::{Dispatcher, PhaseTwo};
use crate::engine::EngineHandle;

type Ended = (Xid, BranchId, Decision);

/// Stands before the dispatcher, and keeps from it what nobody is to be asked for.
#[derive(Debug)]
pub(crate) struct Uncalled {
    dispatcher: Dispatcher,
    ended: Mutex<BTreeSet<Ended>>,
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
            if let Err(error) = engine.notify(ended.into_iter().map(done).collect()).await {
                tracing::debug!(%error, "branches that are asked nothing not recorded");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Ended>> {
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

/// The branch of a call that asks nothing.
fn uncalled(effect: &Effect) -> Option<Ended> {
    let Effect::PhaseTwo(call) = effect else { return None };
    let asks_nothing = match call.mode {
        // Outside of the coordinator's own sagas, whose calls are of steps, only clients of Seata
        // have branches of this mode.
        Mode::Saga => {
            call.step.is_none() && call.branch != SAGA && call.decision == Decision::Commit
        }
        // A native client has no such name of a database, and drops its undo log then.
        Mode::At | Mode::Xa => {
            call.resource.starts_with(JDBC) && call.resolution == Some(Resolution::AcceptCurrent)
        }
        Mode::Tcc | Mode::TwoPhase => false,
    };
    asks_nothing.then_some((call.xid, call.branch, call.decision))
}

fn done((xid, branch, decision): Ended) -> What {
    What::FinishPhaseTwo { xid, branch, decision, outcome: PhaseTwoOutcome::Done }
}
