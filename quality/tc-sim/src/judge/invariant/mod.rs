//! The invariants: rules that must always hold, one a file.

mod acknowledged;
mod atomic_outcome;
mod change_of_leader;
mod clock;
mod committed_read;
mod conservation;
mod decision;
mod event;
mod every_global_ends;
mod exactly_once;
mod fenced;
mod guarded;
mod lent;
mod one_leader;
mod prepared;
mod refused_registration;
mod row_lock;
mod saga;

use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// A condition that must always hold.
pub(crate) trait Invariant: Send {
    /// Returns its name in reports: that of its file.
    fn name(&self) -> &'static str;

    /// Judges an observation. The ledger is as it was before it.
    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict);
}

/// Returns every invariant, with nothing observed yet.
pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(acknowledged::Acknowledged::default()),
        Box::new(atomic_outcome::AtomicOutcome),
        Box::new(change_of_leader::ChangeOfLeader::default()),
        Box::new(clock::Clock::default()),
        Box::new(committed_read::CommittedRead),
        Box::new(conservation::Conservation),
        Box::new(decision::DecidedOnce::default()),
        Box::new(event::EventsInOrder::default()),
        Box::new(every_global_ends::EveryGlobalEnds),
        Box::new(exactly_once::ExactlyOnce::default()),
        Box::new(fenced::Fenced),
        Box::new(guarded::Guarded),
        Box::new(lent::Lent::default()),
        Box::new(one_leader::OneLeader::default()),
        Box::new(prepared::PreparedBranches),
        Box::new(refused_registration::RefusedRegistration::default()),
        Box::new(row_lock::RowLock::default()),
        Box::new(saga::Saga),
    ]
}
