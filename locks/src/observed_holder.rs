//! The lock as observed by a request that was not granted, on a backend outside this process.

use std::time::Duration;

use crate::backend::{AcquireResponse, WAITER_HEARTBEAT};
use crate::name::{AcquisitionId, Holder};

/// The longest pause between two polls of a waiter that is far behind in the queue.
const POLL_MAX: Duration = Duration::from_millis(500);

pub(crate) struct ObservedHolder {
    /// The id of the holder, or empty if there is none.
    pub(crate) owner: String,
    pub(crate) label: String,
    /// The rest of the lease.
    pub(crate) left: Duration,
    /// The number of waiters that have waited longer.
    pub(crate) ahead: i64,
}

impl ObservedHolder {
    pub(crate) fn holder(self) -> Option<Holder> {
        let id = AcquisitionId::parse(&self.owner).filter(|_| !self.left.is_zero())?;
        Some(Holder { id, label: self.label })
    }

    /// Makes the response to the request. With wake-ups, only the first waiter in the queue tries
    /// again before its next heartbeat, when the lease ends. Without wake-ups the queue polls, and
    /// waiters that are further behind poll less often.
    pub(crate) fn answer(self, poll: Option<Duration>) -> AcquireResponse {
        let is_first = self.ahead == 0;
        // One millisecond is added: a request that comes before the lease has ended would be in
        // vain.
        let end = if is_first { self.left + Duration::from_millis(1) } else { WAITER_HEARTBEAT };
        let queue = u32::try_from(self.ahead).unwrap_or(u32::MAX).saturating_add(1);
        let poll = poll.map_or(WAITER_HEARTBEAT, |poll| poll.saturating_mul(queue).min(POLL_MAX));
        AcquireResponse::Busy {
            holder: self.holder(),
            retry_after: end.min(poll).min(WAITER_HEARTBEAT),
        }
    }
}
