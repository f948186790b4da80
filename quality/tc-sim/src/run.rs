//! One run of one plan.

use handfast_core::SagaState;
use handfast_rm_core::fence::State;

use crate::cluster::Cluster;
use crate::fault::Faults;
use crate::ledger::Ledger;
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
    /// What came of the other modes.
    pub modes: Modes,
    /// The log, where one was asked for.
    pub log: Vec<String>,
}

/// What came of the modes beside AT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Branches in TCC mode that were confirmed.
    pub confirmed: u64,
    /// Those that were cancelled after their try.
    pub cancelled: u64,
    /// Those that were cancelled before their try, which is barred.
    pub barred: u64,
    /// Sagas that were completed.
    pub completed: u64,
    /// Sagas that were taken back.
    pub compensated: u64,
    /// Prepared branches that were committed.
    pub kept: u64,
    /// Prepared branches that were rolled back.
    pub dropped: u64,
    /// Events that took effect.
    pub told: u64,
    /// Events that were emitted and, with their global, rolled back.
    pub untold: u64,
}

impl Modes {
    /// Those of another run on top.
    pub fn add(&mut self, other: &Self) {
        self.confirmed += other.confirmed;
        self.cancelled += other.cancelled;
        self.barred += other.barred;
        self.completed += other.completed;
        self.compensated += other.compensated;
        self.kept += other.kept;
        self.dropped += other.dropped;
        self.told += other.told;
        self.untold += other.untold;
    }
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
        modes: modes(oracle.ledger()),
        log: world.take_log(),
    }
}

fn modes(ledger: &Ledger) -> Modes {
    let (kept, dropped) = ledger.prepared_ended;
    let told = ledger.events.values().filter(|event| event.took_effect).count() as u64;
    let untold = ledger.events.len() as u64 - told;
    let mut modes = Modes { kept, dropped, told, untold, ..Modes::default() };
    let tried = ledger.fenced.iter().filter(|((xid, _), _)| !ledger.sagas.contains_key(xid));
    for (_, effect) in tried {
        match effect.state {
            State::Tried => {}
            State::Confirmed => modes.confirmed += 1,
            State::Cancelled => modes.cancelled += 1,
            State::Barred => modes.barred += 1,
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
