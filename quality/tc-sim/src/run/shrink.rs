//! Makes a failing plan smaller, as long as it breaks the same invariant.

use super::run;
use crate::plan::{Fault, Mode, Plan};

/// The number of runs that shrinking may take.
const RUNS_MAX: usize = 200;

/// Returns the smallest plan found that first breaks the same invariant as this one. Returns the
/// plan itself if it breaks none.
#[must_use]
pub fn shrink(plan: &Plan) -> Plan {
    let Some(invariant) = first_broken(plan) else { return plan.clone() };
    let mut smallest = plan.clone();
    let mut runs = 0;
    while let Some(smaller) = candidates(&smallest).into_iter().find(|candidate| {
        runs += 1;
        runs <= RUNS_MAX && first_broken(candidate) == Some(invariant)
    }) {
        smallest = smaller;
    }
    smallest
}

fn first_broken(plan: &Plan) -> Option<&'static str> {
    run(plan).violations.first().map(|violation| violation.invariant)
}

/// Returns the plans that are smaller by one step, the largest steps first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut candidates = Vec::new();
    let mut smaller = |change: &dyn Fn(&mut Plan)| {
        let mut candidate = plan.clone();
        change(&mut candidate);
        if candidate != *plan {
            candidates.push(candidate);
        }
    };
    smaller(&|plan| plan.transactions = (plan.transactions / 2).max(1));
    smaller(&|plan| plan.faults_ms = plan.faults_ms * 2 / 3);
    for fault in Fault::ALL {
        smaller(&|plan| plan.without.extend([fault]));
    }
    for mode in Mode::ALL {
        smaller(&|plan| plan.modes.retain(|kept| *kept != mode));
    }
    smaller(&|plan| plan.servers = (plan.servers - 1).max(1));
    smaller(&|plan| plan.clients = (plan.clients - 1).max(1));
    smaller(&|plan| plan.databases = (plan.databases - 1).max(2));
    smaller(&|plan| plan.workers = (plan.workers - 1).max(1));
    smaller(&|plan| plan.rows = (plan.rows / 2).max(1));
    smaller(&|plan| plan.transactions = (plan.transactions - 1).max(1));
    smaller(&|plan| plan.faults_ms = plan.faults_ms * 9 / 10);
    candidates
}
