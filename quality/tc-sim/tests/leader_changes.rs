//! The failures of coordinators and of their store by name, each without any other fault, on three
//! coordinators.

use handfast_sim::{Fault, Faults, Plan, run};

/// The runs of one failure.
const SEEDS: u64 = 12;

/// Runs plans in which these faults alone strike.
fn check(faults: &[Fault]) {
    let (mut struck, mut committed) = (Faults::default(), 0);
    for seed in 1..=SEEDS {
        let without = Fault::ALL.into_iter().filter(|fault| !faults.contains(fault)).collect();
        let plan = Plan { servers: 3, without, ..Plan::of_seed(seed) };
        let outcome = run(&plan);
        assert!(outcome.violations.is_empty(), "{plan}: {:#?}", outcome.violations);
        committed += outcome.committed;
        struck.add(&outcome.faults);
    }
    assert!(committed > SEEDS, "{committed} globals were committed");
    for fault in faults {
        assert!(struck.of(*fault) > 0, "{fault} has not struck");
    }
}

#[test]
fn leader_killed() {
    check(&[Fault::ServerCrash]);
}

#[test]
fn leader_stopped_and_resumed() {
    check(&[Fault::ServerFrozen]);
}

#[test]
fn leader_replaced_as_planned() {
    check(&[Fault::ServerStopped]);
}

#[test]
fn leader_cut_off_from_the_store() {
    check(&[Fault::StoreCutOff]);
}

#[test]
fn leader_asleep_before_its_batch() {
    check(&[Fault::LeaderAsleep]);
}

#[test]
fn candidate_asleep_before_its_mark() {
    check(&[Fault::CandidateAsleep, Fault::LeadershipTaken]);
}

#[test]
fn clock_step() {
    check(&[Fault::ClockStep, Fault::ServerCrash, Fault::LeadershipTaken]);
}

#[test]
fn store_slow_or_stuck() {
    check(&[Fault::DiskSlow, Fault::DiskStuck]);
}

#[test]
fn store_without_answers() {
    check(&[Fault::StoreRequestLost, Fault::StoreAnswerLost]);
}
