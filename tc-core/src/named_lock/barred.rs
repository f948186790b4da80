//! Tokens that were released while a request of theirs may still arrive: it must not be granted.
//!
//! In memory alone: no request outlives the server that was to receive it.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::{LockToken, Timestamp};

/// How long a request may be on its way, in milliseconds. Too short: an unwanted lease is granted,
/// and blocks others for the length of a lease.
const LATE_MS_MAX: u64 = 10 * 60 * 1_000;
/// How many are kept at most (BOUNDED); then the longest barred goes.
const BARRED_MAX: usize = 100_000;

/// The tokens, each with the end of its time, and in the order of these ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Barred {
    until: BTreeMap<LockToken, Timestamp>,
    in_order: BTreeSet<(Timestamp, LockToken)>,
}

impl Barred {
    pub(super) fn add(&mut self, now: Timestamp, token: LockToken) {
        let until = now.after_ms(LATE_MS_MAX);
        // A further release starts the time again: a request may have been sent since the one
        // before.
        if let Some(earlier) = self.until.insert(token, until) {
            self.in_order.remove(&(earlier, token));
        }
        self.in_order.insert((until, token));
        let is_over = |&(until, _): &(Timestamp, LockToken)| until <= now;
        while self.in_order.len() > BARRED_MAX || self.in_order.first().is_some_and(is_over) {
            let oldest = self.in_order.pop_first();
            oldest.map(|(_, token)| self.until.remove(&token));
        }
    }

    pub(super) fn contains(&self, token: LockToken) -> bool {
        self.until.contains_key(&token)
    }
}
