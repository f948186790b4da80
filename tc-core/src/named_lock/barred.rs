//! Tokens that were released while a request of theirs may still arrive: it must not be granted.
//!
//! In memory alone: no request outlives the server that was to receive it.

use std::collections::{BTreeSet, VecDeque};

use crate::contract::{LockToken, Timestamp};

/// How long a request may be on its way, in milliseconds. Too short: an unwanted lease is granted,
/// and blocks others for the length of a lease.
const LATE_MS_MAX: u64 = 10 * 60 * 1_000;
/// How many are kept at most (BOUNDED); then the longest barred goes.
const BARRED_MAX: usize = 100_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Barred {
    tokens: BTreeSet<LockToken>,
    in_order: VecDeque<(Timestamp, LockToken)>,
}

impl Barred {
    pub(super) fn add(&mut self, now: Timestamp, token: LockToken) {
        if self.tokens.insert(token) {
            self.in_order.push_back((now.after_ms(LATE_MS_MAX), token));
        }
        let is_over = |&(until, _): &(Timestamp, LockToken)| until <= now;
        while self.in_order.len() > BARRED_MAX || self.in_order.front().is_some_and(is_over) {
            let oldest = self.in_order.pop_front();
            oldest.map(|(_, token)| self.tokens.remove(&token));
        }
    }

    pub(super) fn contains(&self, token: LockToken) -> bool {
        self.tokens.contains(&token)
    }
}
