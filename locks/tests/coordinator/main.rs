//! Locks over the coordinator do more than those of every backend: they survive its death, they
//! may belong to a global, and they have a delay and a limit of their own.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod owned;
mod restart;
mod tc;
mod terms;
mod waiter;

use std::time::Duration;

use handfast::{CoordinatorLocks, Handfast};
use handfast_locks::{Locks, LocksBuilder};

use tc::Tc;

/// Long enough not to end by itself on a loaded machine.
const LEASE: Duration = Duration::from_secs(20);

async fn connect(tc: &Tc) -> Handfast {
    Handfast::connect(tc.endpoint()).application("locks").await.unwrap()
}

fn over(backend: CoordinatorLocks) -> LocksBuilder {
    Locks::over(backend).lease(LEASE)
}
