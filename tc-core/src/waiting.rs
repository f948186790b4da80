//! The requests that are answered later: for locks on rows, for votes, or for a global or a saga to
//! end.
//!
//! They live in memory alone; a server that takes the lead has none, and the clients ask again.
//! Requests that wait for a named lock are in `named_lock`.

use std::collections::BTreeMap;

use crate::contract::{Asker, Correlation, Xid};
use crate::row_lock::table::WaitId;
use crate::shares::ShareTally;

/// The waiting requests, each with what it waits for and its sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingRequests {
    by_correlation: BTreeMap<Correlation, Awaited>,
    /// The senders that are known, for their shares.
    askers: BTreeMap<Correlation, Asker>,
    tally: ShareTally,
    ends: BTreeMap<Xid, Vec<Correlation>>,
    len: usize,
}

/// The end of a request's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Locks(WaitId),
    End(Xid),
    Votes(Xid),
}

impl WaitingRequests {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many requests wait, by their senders.
    pub(crate) fn tally(&self) -> &ShareTally {
        &self.tally
    }

    pub(crate) fn awaited(&self, correlation: Correlation) -> Option<Awaited> {
        self.by_correlation.get(&correlation).copied()
    }

    pub(crate) fn enter(&mut self, correlation: Correlation, awaited: Awaited, asker: &Asker) {
        if *asker != Asker::default() {
            self.tally.enter(asker.client, &asker.application, 1);
            self.askers.insert(correlation, asker.clone());
        }
        self.by_correlation.insert(correlation, awaited);
        self.len += 1;
    }

    /// Gives up a place, and returns the sender of its request.
    pub(crate) fn leave(&mut self, correlation: Correlation, awaited: Awaited) -> Asker {
        self.len -= 1;
        let asker = self.askers.remove(&correlation).unwrap_or_default();
        if asker != Asker::default() {
            self.tally.leave(asker.client, &asker.application, 1);
        }
        if self.awaited(correlation) == Some(awaited) {
            self.by_correlation.remove(&correlation);
        }
        asker
    }

    /// Keeps the place of a request that is answered when the global or saga ends.
    pub(crate) fn await_end(&mut self, xid: Xid, correlation: Correlation, asker: &Asker) {
        self.enter(correlation, Awaited::End(xid), asker);
        self.ends.entry(xid).or_default().push(correlation);
    }

    /// Gives up the place of a request that waits for an end.
    pub(crate) fn forget_end(&mut self, xid: Xid, correlation: Correlation) {
        let Some(waiting) = self.ends.get_mut(&xid) else { return };
        let Some(place) = waiting.iter().position(|&known| known == correlation) else { return };
        waiting.remove(place);
        if waiting.is_empty() {
            self.ends.remove(&xid);
        }
        self.leave(correlation, Awaited::End(xid));
    }

    /// Takes out the requests that wait for the global or saga to end.
    pub(crate) fn take_ends(&mut self, xid: Xid) -> Vec<Correlation> {
        let waiting = self.ends.remove(&xid).unwrap_or_default();
        for &correlation in &waiting {
            self.leave(correlation, Awaited::End(xid));
        }
        waiting
    }

    /// Returns whether the shares, counted again from the waiting requests, agree.
    pub(crate) fn shares_are_consistent(&self) -> bool {
        let mut tally = ShareTally::default();
        for asker in self.askers.values() {
            tally.enter(asker.client, &asker.application, 1);
        }
        let wait = self.askers.keys().all(|asked| self.by_correlation.contains_key(asked));
        wait && tally == self.tally
    }
}
