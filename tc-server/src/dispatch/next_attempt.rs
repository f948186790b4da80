//! Views of what is owed to the branches of one global: when each is tried next.

use std::sync::Arc;

use handfast_core::{BranchId, Timestamp, Xid};

use super::owed_call::{CallState, OwedCall};
use super::queue::Queue;

/// The next attempt at phase two of a branch, or at its vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextAttempt {
    /// The branch.
    pub branch: BranchId,
    /// The resource that it runs on.
    pub resource: Arc<str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The thing that it waits for.
    pub waits_for: AttemptWait,
}

/// The thing that an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWait {
    /// The end of a pause.
    Pause {
        /// When it is over.
        until: Timestamp,
    },
    /// The answer of a process that was called.
    Answer {
        /// When the process counts as silent.
        until: Timestamp,
    },
    /// A process of the resource that has room for a call.
    Room,
    /// A process of the resource: none is connected.
    Process,
}

impl Queue {
    /// Returns what is owed to the branches of a global, the first `max` of them.
    #[must_use]
    pub fn next_attempts(&self, xid: Xid, max: usize) -> Vec<NextAttempt> {
        let of_global = self.calls.range((xid, BranchId(0))..=(xid, BranchId(u64::MAX)));
        of_global.take(max).map(|(_, owed)| self.next_attempt(owed)).collect()
    }

    fn next_attempt(&self, owed: &OwedCall) -> NextAttempt {
        let resource = &owed.call.resource;
        let waits_for = match owed.state {
            CallState::Delayed { until } => AttemptWait::Pause { until },
            CallState::InFlight { until, .. } => AttemptWait::Answer { until },
            CallState::Due { .. } => {
                let queue = self.queues.get(resource);
                let served = queue.is_some_and(|queue| !queue.processes.is_empty());
                if served { AttemptWait::Room } else { AttemptWait::Process }
            }
        };
        NextAttempt {
            branch: owed.call.branch,
            resource: Arc::clone(&resource.id),
            attempt: owed.failures.saturating_add(1),
            waits_for,
        }
    }
}
