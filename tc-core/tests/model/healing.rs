//! Everything ends: from any state, once nothing fails any more.

use std::collections::BTreeMap;

use handfast_core::{
    Command, Coordinator, Effect, GlobalStatus, Outcome, PhaseTwoOutcome, Request, Timestamp, Xid,
};

use crate::step::settled;
use crate::system::{Setup, System, xid_of};

/// More rounds than the globals of any set-up have branches and deadlines.
const ROUNDS_MAX: usize = 32;

/// The leader of this moment, or the next one, brings every global to its end.
pub(crate) fn everything_ends(setup: &Setup, system: &System) -> bool {
    let next = system.store.load(system.epoch + 1, &setup.limits);
    let current = system.current().map(|leader| leader.coordinator.clone());
    let ends = |coordinator| ends(setup, coordinator, system.now, &system.locally);
    next.is_ok_and(ends) && current.is_none_or(ends)
}

fn ends(
    setup: &Setup,
    mut coordinator: Coordinator,
    mut now: Timestamp,
    locally: &BTreeMap<Xid, bool>,
) -> bool {
    for _ in 0..ROUNDS_MAX {
        let counts = coordinator.counts();
        let unfinished = counts.active + counts.committing + counts.rolling_back;
        if unfinished + counts.locks + counts.waiters + counts.pending_branches == 0 {
            return counts.needs_operator == 0 && follows(&coordinator, locally);
        }
        carry_out(&mut coordinator, now);
        now = now.max(coordinator.next_deadline().unwrap_or_default());
        ask(&mut coordinator, now, Command::Tick);
        // Each database answers, whether it is asked now or was before: an answer to no question
        // changes nothing.
        for (global, plan) in setup.globals.iter().enumerate() {
            let (xid, Some(branch)) = (xid_of(global), plan.last_branch()) else { continue };
            let has_committed = locally.get(&xid) == Some(&true);
            let answer = settled(xid, branch, has_committed);
            coordinator.decide(now, answer, &mut Outcome::default());
        }
    }
    false
}

/// Every branch answers the calls that it is owed.
fn carry_out(coordinator: &mut Coordinator, now: Timestamp) {
    let mut owed = Outcome::default();
    coordinator.owed(&mut owed);
    for effect in owed.effects {
        if let Effect::PhaseTwo(call) = effect {
            let (xid, branch, decision) = (call.xid, call.branch, call.decision);
            let outcome = PhaseTwoOutcome::Done;
            ask(coordinator, now, Command::FinishPhaseTwo { xid, branch, decision, outcome });
        }
    }
}

/// LAST-BRANCH: a global is committed if its last branch is, whichever side decides it.
fn follows(coordinator: &Coordinator, locally: &BTreeMap<Xid, bool>) -> bool {
    let is_followed = |(xid, has_committed): (&Xid, &bool)| {
        let status = coordinator.status(*xid);
        !has_committed || matches!(status, GlobalStatus::Committed | GlobalStatus::Unknown)
    };
    locally.iter().all(is_followed)
}

fn ask(coordinator: &mut Coordinator, now: Timestamp, command: Command) {
    coordinator.decide(now, Request { reply_to: None, command }, &mut Outcome::default());
}
