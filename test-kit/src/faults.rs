//! The faults that are injected, asked by the wire at each message.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_proto::v1::{BranchOutcome, Decision, PhaseTwoCall, Question};

use crate::fault::{Fault, ForeignWork, Kind};
use crate::traffic::CallName;

/// Input that no type can be read from.
const DAMAGED_INPUT: &[u8] = b"\xff";
/// The id of no branch.
const DAMAGED_BRANCH: u64 = 0;

/// The faults of a test.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    injected: Mutex<Vec<Injected>>,
}

/// A fault, and what it has done.
#[derive(Debug)]
struct Injected {
    name: String,
    trigger: Trigger,
    struck: Arc<AtomicUsize>,
    failure: Option<String>,
}

struct Trigger {
    kind: Option<Kind>,
    /// Registrations that were looked at.
    registrations: HashSet<u64>,
    /// Calls whose first answer was lost.
    doubled: HashSet<CallName>,
    /// COMMITs that were looked at.
    commits: usize,
    /// Calls under way whose COMMIT is to fail.
    uncommitted: HashSet<CallName>,
    /// Whether such a call has been answered.
    is_spent: bool,
}

impl std::fmt::Debug for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trigger").finish_non_exhaustive()
    }
}

impl Faults {
    /// Adds a fault; `struck` counts how often it happens.
    pub(crate) fn inject(&self, fault: Fault, struck: Arc<AtomicUsize>) {
        let trigger = Trigger {
            kind: Some(fault.kind),
            registrations: HashSet::new(),
            doubled: HashSet::new(),
            commits: 0,
            uncommitted: HashSet::new(),
            is_spent: false,
        };
        self.lock().push(Injected { name: fault.name, trigger, struck, failure: None });
    }

    /// Removes the fault that counts here.
    pub(crate) fn lift(&self, struck: &Arc<AtomicUsize>) {
        self.lock().retain(|it| !Arc::ptr_eq(&it.struck, struck));
    }

    /// Describes the faults that did not happen, or could not.
    pub(crate) fn missed(&self) -> Vec<String> {
        let describe = |it: &Injected| match (&it.failure, it.struck.load(Ordering::SeqCst)) {
            (Some(failure), _) => Some(format!("{}: failed: {failure}", it.name)),
            (None, 0) => Some(format!("{}: never happened", it.name)),
            (None, _) => None,
        };
        self.lock().iter().filter_map(describe).collect()
    }

    /// Looks at the registration of a branch, and damages it if it is to be refused.
    pub(crate) fn at_registration(&self, branch: &mut u64) {
        for it in self.lock().iter_mut() {
            let Some(Kind::RefuseRegistration { nth }) = it.trigger.kind else { continue };
            // A request that is sent again after a broken connection is the same registration.
            let is_next = it.trigger.registrations.insert(*branch);
            if is_next && it.trigger.registrations.len() == nth {
                it.strike();
                *branch = DAMAGED_BRANCH;
                return;
            }
        }
    }

    /// Looks at a call to a service, and damages it if it is to be refused. Returns for how long it
    /// is on its way.
    pub(crate) fn at_call(&self, call: &mut PhaseTwoCall) -> Duration {
        let mut on_the_way = Duration::ZERO;
        for it in self.lock().iter_mut() {
            let Some(kind) = &it.trigger.kind else { continue };
            if kind.fails_commit_of(call) && !it.trigger.is_spent {
                it.trigger.uncommitted.extend(CallName::of_call(call));
            } else if kind.refuses(call) {
                for branch in &mut call.branches {
                    branch.application_data = DAMAGED_INPUT.to_vec();
                }
                it.strike();
            } else if let Kind::DelayPhaseTwo { by } = *kind
                && call.question() == Question::None
            {
                on_the_way += by;
                it.strike();
            }
        }
        on_the_way
    }

    /// Looks at an answer of a service. Returns whether it is lost, so that the call is repeated.
    pub(crate) fn at_outcome(&self, call: &PhaseTwoCall, outcome: &BranchOutcome) -> bool {
        let mut is_lost = false;
        for it in self.lock().iter_mut() {
            it.trigger.is_spent |= it.trigger.uncommitted.remove(&CallName::of_outcome(outcome));
            let doubles = it.trigger.kind.as_ref().is_some_and(|kind| kind.doubles(call, outcome));
            if doubles && it.trigger.doubled.insert(CallName::of_outcome(outcome)) {
                it.strike();
                is_lost = true;
            }
        }
        is_lost
    }

    /// Looks at a COMMIT that has changed rows of the service. Returns whether it goes through.
    #[cfg(feature = "sqlite")]
    pub(crate) fn at_commit(&self) -> bool {
        let mut goes_through = true;
        for it in self.lock().iter_mut() {
            let fails = match it.trigger.kind {
                Some(Kind::FailCommit { nth }) => {
                    it.trigger.commits += 1;
                    it.trigger.commits == nth
                }
                Some(Kind::FailCommitOf { .. }) => !it.trigger.uncommitted.is_empty(),
                Some(_) | None => false,
            };
            if fails {
                it.strike();
                goes_through = false;
            }
        }
        goes_through
    }

    /// Runs what is to happen before this call reaches its service.
    pub(crate) async fn before(&self, call: &PhaseTwoCall) {
        if call.decision() != Decision::RollBack {
            return;
        }
        while let Some((work, struck)) = self.next_foreign_work() {
            let result = work().await;
            if let Err(failure) = result {
                let mut injected = self.lock();
                let it = injected.iter_mut().find(|it| Arc::ptr_eq(&it.struck, &struck));
                if let Some(it) = it {
                    it.failure = Some(failure);
                }
            }
        }
    }

    fn next_foreign_work(&self) -> Option<(ForeignWork, Arc<AtomicUsize>)> {
        let mut injected = self.lock();
        let is_work = |it: &&mut Injected| matches!(it.trigger.kind, Some(Kind::BeforeRollback(_)));
        let it = injected.iter_mut().find(is_work)?;
        it.strike();
        match it.trigger.kind.take() {
            Some(Kind::BeforeRollback(work)) => Some((work, Arc::clone(&it.struck))),
            Some(_) | None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Injected>> {
        self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Injected {
    fn strike(&self) {
        self.struck.fetch_add(1, Ordering::SeqCst);
    }
}
