//! What is planned to happen in the simulation, and the chances that decide it.

use std::time::Duration;

use super::super::Event;
use crate::backend::{Ask, Hold, Leave};
use crate::clock::Moment;
use crate::error::BackendError;

/// A source of chances that is the same on every machine.
pub(super) struct Dice(pub(super) u64);

impl Dice {
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

/// What happens at a time.
#[derive(Debug)]
pub(super) enum Step {
    /// A request arrives at the table; the call's answer goes to the client unless it is a copy.
    Arrive { to: Call, request: Request, is_copy: bool },
    /// Something arrives at a client, if that one still lives.
    Deliver { client: u128, call: Option<u64>, event: Event },
    /// A client's timer.
    Timer { client: u128 },
    /// Somebody wants a lock.
    Begin,
    /// A client's guard is dropped.
    Drop { client: u128, number: u64 },
    /// A writer wants to be a reader.
    Downgrade { client: u128, number: u64 },
    /// Somebody frees a lock who has no right to.
    Seize { which: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: u128,
    pub(super) id: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    Ask(Ask),
    Renew(Vec<u64>, Vec<Hold>),
    Leave(Leave),
}

impl Request {
    pub(super) fn failed(&self) -> Event {
        let error = BackendError::unanswered();
        match self {
            Self::Ask(ask) => Event::Answered { number: ask.token.number, answer: Err(error) },
            Self::Renew(numbers, _) => {
                Event::Renewed { numbers: numbers.clone(), answer: Err(error) }
            }
            Self::Leave(leave) => {
                Event::Left { number: leave.hold.token.number, answer: Err(error) }
            }
        }
    }
}

/// Earliest first; what was planned first comes first.
pub(super) struct Planned(pub(super) Moment, pub(super) u64, pub(super) Step);

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
