//! Clients that have gone: their globals without a branch end after a grace.
//!
//! Only its transaction manager knows a global without a branch. Once that has gone, the global
//! would merely keep its place until its deadline, so it is forgotten, as by a restart (decision
//! 0002). A global with a branch keeps its deadline: a decision may be on its way. A process that
//! comes back in time, over another connection, finds everything as it was.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::{ClientId, Timestamp};

/// The clients that have gone and left globals without a branch, with the ends of their graces.
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
