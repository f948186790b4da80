//! Guarded tables with writers from outside, in runs of ordinary length and in long ones, in which
//! guards are put on and taken away. That guards refuse anything, and let the rest pass, is
//! asserted here: the invariants would hold without a writer.

use std::collections::BTreeSet;

use handfast_sim::{Mode, Plan, run};

/// Runs seeds with these modes beside AT.
fn check(seeds: u64, modes: &[Mode]) {
    let (mut passed, mut refused) = (0, 0);
    for seed in 1..=seeds {
        let modes: BTreeSet<Mode> = modes.iter().copied().collect();
        let plan = Plan { modes, ..Plan::of_seed(seed) };
        let outcome = run(&plan);
        assert!(outcome.violations.is_empty(), "{plan}: {:#?}", outcome.violations);
        passed += outcome.modes.outside_passed;
        refused += outcome.modes.outside_refused;
    }
    assert!(passed > seeds && refused > seeds, "{passed} writes passed, {refused} were refused");
}

#[test]
fn guards_refuse_what_branches_hold() {
    check(30, &[Mode::Guards]);
}

#[test]
fn guards_with_counters() {
    check(30, &[Mode::Guards, Mode::Counters]);
}

#[test]
fn guards_come_and_go() {
    check(6, &[Mode::Guards, Mode::GuardChanges]);
}
