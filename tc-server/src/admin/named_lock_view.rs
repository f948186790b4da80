//! Translates named locks from the core's values to the API's messages. Pure.

use handfast_core::{LeaseRecord, LockShare, NamedLockView, NamedLockWaiter, Timestamp, Xid};

use super::model;
use crate::time_format::rfc3339;

pub(super) fn named_lock(lock: &NamedLockView, now: Timestamp) -> model::NamedLock {
    model::NamedLock {
        name: lock.name.as_ref().to_owned(),
        leases: lock.held.iter().map(|held| lease(held, now)).collect(),
        holding: lock.holding,
        queue: lock.queue.iter().map(|it| waiter(it, now)).collect(),
        waiting: lock.waiting,
    }
}

fn lease(lease: &LeaseRecord, now: Timestamp) -> model::Lease {
    let left_ms = lease.ends_at.0.saturating_sub(now.0);
    model::Lease {
        token: lease.token.to_string(),
        label: lease.label.as_ref().to_owned(),
        share: share(lease.share),
        fence: lease.fence.to_string(),
        since: rfc3339(lease.granted_at),
        age_ms: now.0.saturating_sub(lease.granted_at.0),
        left_ms: lease.xid.is_none().then_some(left_ms),
        xid: lease.xid.as_ref().map(Xid::to_string),
    }
}

fn waiter(waiter: &NamedLockWaiter, now: Timestamp) -> model::NamedLockWaiter {
    model::NamedLockWaiter {
        token: waiter.token.to_string(),
        label: waiter.label.as_ref().to_owned(),
        share: share(waiter.share),
        since: rfc3339(waiter.since),
        age_ms: now.0.saturating_sub(waiter.since.0),
        xid: waiter.xid.as_ref().map(Xid::to_string),
    }
}

fn share(share: LockShare) -> String {
    match share {
        LockShare::All => "all".to_owned(),
        LockShare::Part { of: u32::MAX } => "read".to_owned(),
        LockShare::Part { of } => format!("1 of {of}"),
    }
}
