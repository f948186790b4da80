//! Clients that have gone: what they have begun and no branch has joined ends after a grace.
//!
//! A global without a branch is known to its launcher alone, so that nothing happens to it any more
//! when that has gone, and it would keep its place until its time limit. It is forgotten, as by a
//! restart (decision 0002). One that has a branch keeps its time: a decision may have been made and
//! be on its way. A process that comes back in time, over a new connection, finds all as it was.

use std::collections::{BTreeMap, BTreeSet};

use super::state::Phase;
use crate::contract::{ClientId, Outcome, RollbackReason, Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::reply::Answer;

/// The clients that have gone and have something to lose, by when they lose it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    by_client: BTreeMap<ClientId, Timestamp>,
    due: BTreeSet<(Timestamp, ClientId)>,
}

impl Gone {
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|&(at, _)| at)
    }

    fn add(&mut self, client: ClientId, at: Timestamp) {
        self.remove(client);
        self.by_client.insert(client, at);
        self.due.insert((at, client));
    }

    fn remove(&mut self, client: ClientId) {
        if let Some(at) = self.by_client.remove(&client) {
            self.due.remove(&(at, client));
        }
    }

    fn first_due(&self, now: Timestamp) -> Option<ClientId> {
        self.due.first().filter(|&&(at, _)| at <= now).map(|&(_, client)| client)
    }

    pub(crate) fn is_consistent(&self) -> bool {
        let due: BTreeSet<_> = self.by_client.iter().map(|(&client, &at)| (at, client)).collect();
        due == self.due
    }
}

impl Coordinator {
    pub(crate) fn client_gone(&mut self, now: Timestamp, client: ClientId) -> Answer {
        if self.globals.first_without_branch(client).is_some() {
            self.gone.add(client, now.after_ms(self.limits.client_grace_ms));
        }
        Ok(None)
    }

    pub(crate) fn client_came(&mut self, client: ClientId) -> Answer {
        self.gone.remove(client);
        Ok(None)
    }

    /// Ends what clients have left that have been gone for long enough.
    pub(crate) fn tick_gone(&mut self, now: Timestamp, max: usize, out: &mut Outcome) {
        for _ in 0..max {
            let Some(client) = self.gone.first_due(now) else { return };
            match self.globals.first_without_branch(client) {
                Some(xid) => self.abandon(now, xid, out),
                None => self.gone.remove(client),
            }
        }
    }

    /// Where a request of others waits for the global, such as for its first branch, it is decided
    /// and they are told; nothing else knows of it.
    fn abandon(&mut self, now: Timestamp, xid: Xid, out: &mut Outcome) {
        let is_waited_for =
            self.waits.of_global(xid).next().is_some() || self.leases.is_of_global(xid);
        if is_waited_for {
            let phase = Phase::RollingBack(RollbackReason::Timeout);
            self.decide_global(now, xid, phase, "decided: roll back (its client is gone)", out);
        } else {
            self.globals.remove(xid);
        }
    }
}
