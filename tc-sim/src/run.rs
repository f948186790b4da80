//! One run of one plan.

use crate::cluster::Cluster;
use crate::fault::Faults;
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::world::{Ended, Log, World};

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Invariants that did not hold, in the order in which they were seen broken.
    pub violations: Vec<Violation>,
    /// How often an invariant was checked.
    pub checks: u64,
    /// What was done to the system.
    pub faults: Faults,
    /// How long it took, in microseconds of virtual time.
    pub simulated: u64,
    /// How many globals were stored.
    pub globals: u64,
    /// How many of them were committed.
    pub committed: u64,
    /// The log, where one was asked for.
    pub log: Vec<String>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    run_with(plan, Log::Off)
}

/// Runs a plan and keeps its log.
#[must_use]
pub fn run_logged(plan: &Plan) -> Outcome {
    run_with(plan, Log::Kept(Vec::new()))
}

fn run_with(plan: &Plan, log: Log) -> Outcome {
    let world = World::new(plan.clone(), log);
    let cluster = Cluster::new(&world);
    if world.run(cluster.live()) == Ended::Stuck {
        world.violate("every_global_ends", "everything waits, and for nothing".to_owned());
    }
    let oracle = world.oracle();
    let globals = &oracle.ledger().globals;
    let committed = globals.keys().filter(|xid| oracle.ledger().is_committed(**xid)).count();
    Outcome {
        violations: oracle.violations().to_vec(),
        checks: oracle.checks(),
        faults: world.faults(),
        simulated: world.now(),
        globals: globals.len() as u64,
        committed: committed as u64,
        log: world.take_log(),
    }
}
