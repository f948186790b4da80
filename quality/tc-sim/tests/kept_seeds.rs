//! Plans that found something once. Each line of the file is one, with what it found above it.

use handfast_sim::{Plan, run};

const KEPT: &str = include_str!("kept_seeds.txt");

#[test]
fn what_was_found_once_stays_away() {
    for line in KEPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let plan: Plan = line.parse().unwrap();
        let violations = run(&plan).violations;
        assert!(violations.is_empty(), "{plan}: {violations:#?}");
    }
}
