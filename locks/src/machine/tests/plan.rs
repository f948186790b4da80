//! The events of the simulation, and the random numbers that decide them.

use std::time::Duration;

use super::super::Event;
use crate::backend::{AcquireRequest, LockRef, ReleaseRequest};
use crate::clock::Moment;
use crate::error::BackendError;

/// A random source that is the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn milliseconds(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// An event of the simulation.
#[derive(Debug)]
pub(super) enum SimEvent {
    /// A request arrives at the table. The answer goes to the client, unless the request is a copy.
    Arrive { to: Call, request: Request, is_copy: bool },
    /// An event arrives at a client, if that client still lives.
    Deliver { client: u128, call: Option<u64>, event: Event },
    /// A client's timer ends.
    Timer { client: u128 },
    /// An acquisition begins.
    Begin,
    /// A client's guard is dropped.
    Drop { client: u128, number: u64 },
    /// A writer becomes a reader.
    Downgrade { client: u128, number: u64 },
    /// A lock is freed behind its holder's back.
    Seize { which: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: u128,
    pub(super) id: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    Acquire(AcquireRequest),
    Renew(Vec<u64>, Vec<LockRef>),
    Release(ReleaseRequest),
}

impl Request {
    pub(super) fn failed(&self) -> Event {
        let error = BackendError::unanswered();
        match self {
            Self::Acquire(request) => {
                Event::AcquireAnswered { number: request.id.number, answer: Err(error) }
            }
            Self::Renew(numbers, _) => {
                Event::RenewAnswered { numbers: numbers.clone(), answer: Err(error) }
            }
            Self::Release(request) => {
                Event::ReleaseAnswered { number: request.lock_ref.id.number, answer: Err(error) }
            }
        }
    }
}

/// An event and its time. The earliest comes first, and of those at the same time the one that was
/// planned first.
pub(super) struct Planned(pub(super) Moment, pub(super) u64, pub(super) SimEvent);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}
