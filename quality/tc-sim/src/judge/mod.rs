//! Judges a run: a ledger of what is certain, and the invariants that must hold.
//!
//! The judge knows values and observations, not the models and processes that report them.

mod invariant;
pub(crate) mod ledger;
mod oracle;
mod verdict;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::observation::{Observation, Observer};
use crate::world::{Owner, World};
use oracle::Oracle;

pub use verdict::Violation;

/// The judge of one run: dates what is reported, and logs every violation.
pub(crate) struct Judge {
    world: Arc<World>,
    oracle: Mutex<Oracle>,
}

impl Judge {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), oracle: Mutex::new(Oracle::new()) })
    }

    /// Reports a violation that no invariant's file looks for, such as a panic.
    pub(crate) fn report(&self, invariant: &'static str, what: String) {
        let violation = Violation { invariant, at: self.world.now(), what };
        self.log(&violation);
        self.oracle().add_violation(violation);
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, violation: &Violation) {
        self.world.log(Owner::World, || format!("VIOLATION {violation}"));
    }
}

impl Observer for Judge {
    fn observe(&self, observation: &Observation<'_>) {
        let now = self.world.now();
        let found = self.oracle().observe(now, observation);
        found.iter().for_each(|violation| self.log(violation));
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("oracle", &self.oracle).finish_non_exhaustive()
    }
}
