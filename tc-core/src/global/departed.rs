//! Clients that have gone: what they have begun and no branch has joined ends after a grace.
//!
//! A global without a branch is known to its transaction manager alone, so that nothing happens to
//! it any more when that has gone, and it would keep its place until its time limit. It is
//! forgotten, as by a restart (decision 0002). One that has a branch keeps its time: a decision may
//! have been made and be on its way. A process that comes back in time, over a new connection,
//! finds all as it was.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::{ClientId, Timestamp};

/// The clients that have gone and have something to lose, by when they lose it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepartedClients {
    by_client: BTreeMap<ClientId, Timestamp>,
    due: BTreeSet<(Timestamp, ClientId)>,
}

impl DepartedClients {
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|&(at, _)| at)
    }

    pub(crate) fn add(&mut self, client: ClientId, at: Timestamp) {
        self.remove(client);
        self.by_client.insert(client, at);
        self.due.insert((at, client));
    }

    pub(crate) fn remove(&mut self, client: ClientId) {
        if let Some(at) = self.by_client.remove(&client) {
            self.due.remove(&(at, client));
        }
    }

    pub(crate) fn first_due(&self, now: Timestamp) -> Option<ClientId> {
        self.due.first().filter(|&&(at, _)| at <= now).map(|&(_, client)| client)
    }

    pub(crate) fn is_consistent(&self) -> bool {
        let due: BTreeSet<_> = self.by_client.iter().map(|(&client, &at)| (at, client)).collect();
        due == self.due
    }
}
