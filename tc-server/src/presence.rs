//! Which clients are there. A process has gone when its last connection has; the engine is told,
//! and lets it come back for a while.
//!
//! Each front end has a table of its own: they name their clients in different ways.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use handfast_core::{ClientId, What};
use hashbrown::HashMap;

use crate::engine::EngineHandle;

/// The clients that have a connection, each with how many. BOUNDED by the connections.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    engine: EngineHandle,
    connections: Arc<Mutex<HashMap<ClientId, usize>>>,
}

/// A connection of a client, until it is dropped.
#[derive(Debug)]
pub(crate) struct Present {
    presence: Presence,
    client: ClientId,
}

impl Presence {
    pub(crate) fn new(engine: EngineHandle) -> Self {
        Self { engine, connections: Arc::default() }
    }

    /// Counts a connection.
    pub(crate) fn enter(&self, client: ClientId) -> Present {
        self.change(client, |count| *count += 1);
        Present { presence: self.clone(), client }
    }

    /// The engine is told under the lock, so that it hears of coming and going in their order.
    fn change(&self, client: ClientId, change: impl FnOnce(&mut usize)) {
        let mut connections = self.connections.lock().expect("no holder of this lock panics");
        let count = connections.entry(client).or_default();
        let before = *count;
        change(count);
        match (before, *count) {
            (0, _) => self.engine.notify_unbounded(What::ClientCame { client }),
            (_, 0) => {
                connections.remove(&client);
                self.engine.notify_unbounded(What::ClientGone { client });
            }
            _ => {}
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.presence.change(self.client, |count| *count -= 1);
    }
}

/// The number of a client that is called so in one of the protocols. Two with the same number would
/// share what is one's.
pub(crate) fn client_of(protocol: &str, name: &str) -> ClientId {
    let mut hasher = DefaultHasher::new();
    (protocol, name).hash(&mut hasher);
    ClientId(hasher.finish().max(1))
}
