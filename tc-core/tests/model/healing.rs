//! Everything ends: from any state, once nothing fails any more.

use handfast_core::{Command, Coordinator, Effect, Outcome, PhaseTwoOutcome, Request, Timestamp};

use crate::system::{Setup, System};

/// More rounds than the globals of any set-up have branches and deadlines.
const ROUNDS_MAX: usize = 32;

/// The leader of this moment, or the next one, brings every global to its end.
pub(crate) fn everything_ends(setup: &Setup, system: &System) -> bool {
    let next = system.store.load(system.epoch + 1, &setup.limits);
    let current = system.current().map(|leader| leader.coordinator.clone());
    let ends = |coordinator| ends(coordinator, system.now);
    next.is_ok_and(ends) && current.is_none_or(ends)
}

fn ends(mut coordinator: Coordinator, mut now: Timestamp) -> bool {
    for _ in 0..ROUNDS_MAX {
        let counts = coordinator.counts();
        let unfinished = counts.active + counts.committing + counts.rolling_back;
        if unfinished + counts.locks + counts.waiters + counts.pending_branches == 0 {
            return counts.needs_operator == 0;
        }
        carry_out(&mut coordinator, now);
        now = now.max(coordinator.next_deadline().unwrap_or_default());
        ask(&mut coordinator, now, Command::Tick);
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

fn ask(coordinator: &mut Coordinator, now: Timestamp, command: Command) {
    coordinator.decide(now, Request { reply_to: None, command }, &mut Outcome::default());
}
