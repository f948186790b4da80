//! Tracks which clients are connected. A client has gone when its last connection has ended. The
//! engine is notified, and gives the client some time to come back.
//!
//! Each front end has its own table, because each names its clients in its own way.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use handfast_core::{ClientId, Command};
use hashbrown::HashMap;

use crate::engine::EngineHandle;

/// The connected clients, with the number of their connections. BOUNDED by the connections.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    engine: EngineHandle,
    connections: Arc<Mutex<HashMap<ClientId, usize>>>,
}

/// Counts a connection of a client until it is dropped.
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

    /// Changes the count of a client. Notifies the engine under the lock, so that it sees arrivals
    /// and departures in their order.
    fn change(&self, client: ClientId, change: impl FnOnce(&mut usize)) {
        let mut connections = self.connections.lock().expect("no holder of this lock panics");
        let count = connections.entry(client).or_default();
        let before = *count;
        change(count);
        match (before, *count) {
            (0, _) => self.engine.notify_unbounded(Command::ClientCame { client }),
            (_, 0) => {
                connections.remove(&client);
                self.engine.notify_unbounded(Command::ClientGone { client });
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

/// Returns the id of the client with this name in a protocol, as a hash. Two clients with the same
/// hash would share one client's limits.
pub(crate) fn client_of(protocol: &str, name: &str) -> ClientId {
    let mut hasher = DefaultHasher::new();
    (protocol, name).hash(&mut hasher);
    // 0 stands for no client.
    ClientId(hasher.finish().max(1))
}
