//! Plans that have found a defect. Each line of the file is a plan, below a comment that says what
//! was lost and why.

use handfast_sim::{Plan, run};

const KEPT: &str = include_str!("kept_seeds.txt");

#[test]
fn kept_plans_have_no_violations() {
    for line in KEPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let plan: Plan = line.parse().unwrap();
        let violations = run(&plan).violations;
        assert!(violations.is_empty(), "{plan}: {violations:#?}");
    }
}
