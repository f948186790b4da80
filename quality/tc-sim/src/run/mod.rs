//! Runs a plan, and sums up the run.

mod cluster;
mod nemesis;
mod shrink;

use handfast_core::SagaState;
use handfast_rm_core::fence::FenceState;

use crate::judge::ledger::Ledger;
use crate::judge::{Judge, Violation};
use crate::plan::{Faults, Plan};
use crate::world::{LogMode, RunEnd, World};
use cluster::Cluster;

pub use shrink::shrink;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The violations, in the order in which they were seen.
    pub violations: Vec<Violation>,
    /// The number of checks of invariants.
    pub checks: u64,
    /// The faults that struck.
    pub faults: Faults,
    /// The length of the run, in microseconds of virtual time.
    pub simulated: u64,
    /// How often a coordinator took the lead.
    pub leads: u64,
    /// The number of globals that were stored.
    pub globals: u64,
    /// The number of globals that were committed.
    pub committed: u64,
    /// The number of branches that were told that they decide before they were stored, and of those
    /// of them that no coordinator ever stored.
    pub told_ahead: [u64; 2],
    /// The counts of the modes beside AT.
    pub modes: ModeCounts,
    /// The log, if it was kept.
    pub log: Vec<String>,
}

/// The counts of the modes beside AT in a run, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeCounts {
    /// TCC branches that were confirmed.
    pub confirmed: u64,
    /// TCC branches that were cancelled after their try.
    pub cancelled: u64,
    /// TCC branches that were cancelled before their try, which is barred.
    pub barred: u64,
    /// Sagas that were completed.
    pub completed: u64,
    /// Sagas that were compensated.
    pub compensated: u64,
    /// Prepared branches that were committed.
    pub xa_committed: u64,
    /// Prepared branches that were rolled back.
    pub xa_rolled_back: u64,
    /// Events that took effect.
    pub events_applied: u64,
    /// Events that were emitted and, with their global, rolled back.
    pub events_rolled_back: u64,
    /// Writes of rows from outside that passed, with and without a guard.
    pub outside_passed: u64,
    /// Writes of rows from outside that a guard refused.
    pub outside_refused: u64,
}

impl ModeCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.confirmed += other.confirmed;
        self.cancelled += other.cancelled;
        self.barred += other.barred;
        self.completed += other.completed;
        self.compensated += other.compensated;
        self.xa_committed += other.xa_committed;
        self.xa_rolled_back += other.xa_rolled_back;
        self.events_applied += other.events_applied;
        self.events_rolled_back += other.events_rolled_back;
        self.outside_passed += other.outside_passed;
        self.outside_refused += other.outside_refused;
    }
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    run_with(plan, LogMode::Off)
}

/// Runs a plan and keeps its log.
#[must_use]
pub fn run_logged(plan: &Plan) -> Outcome {
    run_with(plan, LogMode::Kept(Vec::new()))
}

fn run_with(plan: &Plan, log: LogMode) -> Outcome {
    let world = World::new(plan.clone(), log);
    let judge = Judge::new(&world);
    let cluster = Cluster::new(&world, &judge);
    let end = world.run(cluster.live(), |failure| judge.report("total", failure));
    if end == RunEnd::Stuck {
        judge.report("every_global_ends", "every task waits, and no timer is set".to_owned());
    }
    let oracle = judge.oracle();
    let globals = &oracle.ledger().globals;
    let committed = globals.keys().filter(|xid| oracle.ledger().is_committed(**xid)).count();
    Outcome {
        violations: oracle.violations().to_vec(),
        checks: oracle.checks(),
        faults: world.faults(),
        simulated: world.now(),
        leads: oracle.ledger().leads,
        told_ahead: oracle.ledger().told_ahead(),
        globals: globals.len() as u64,
        committed: committed as u64,
        modes: count_modes(oracle.ledger()),
        log: world.take_log(),
    }
}

fn count_modes(ledger: &Ledger) -> ModeCounts {
    let (xa_committed, xa_rolled_back) = ledger.prepared_ended;
    let events_applied = ledger.events.values().filter(|event| event.took_effect).count() as u64;
    let events_rolled_back = ledger.events.len() as u64 - events_applied;
    let (outside_passed, outside_refused) = ledger.outside_writes;
    let mut modes = ModeCounts {
        xa_committed,
        xa_rolled_back,
        events_applied,
        events_rolled_back,
        outside_passed,
        outside_refused,
        ..ModeCounts::default()
    };
    let tried = ledger.fenced.iter().filter(|((xid, _), _)| !ledger.sagas.contains_key(xid));
    for (_, effect) in tried {
        match effect.state {
            FenceState::Tried => {}
            FenceState::Confirmed => modes.confirmed += 1,
            FenceState::Cancelled => modes.cancelled += 1,
            FenceState::Barred => modes.barred += 1,
        }
    }
    for saga in ledger.sagas.values() {
        match saga.state {
            SagaState::Running | SagaState::Compensating(_) => {}
            SagaState::Completed(_) => modes.completed += 1,
            SagaState::Compensated(..) => modes.compensated += 1,
        }
    }
    modes
}
