//! The addresses of the connected clients, of which each may be there once.
//!
//! A client's name, by which the owner of a branch is found, is made of its address. Directly
//! connected clients cannot share one. Those that other nodes pass on can, since a machine may use
//! one port towards several nodes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashSet;

/// The addresses. Cheap to clone. BOUNDED by the connections.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientAddresses {
    taken: Arc<Mutex<HashSet<SocketAddr>>>,
}

/// An address that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct TakenAddress {
    addresses: ClientAddresses,
    address: SocketAddr,
}

impl ClientAddresses {
    /// Takes an address, if no other client has it.
    pub(super) fn take(&self, address: SocketAddr) -> Option<TakenAddress> {
        let is_free = self.lock().insert(address);
        is_free.then(|| TakenAddress { addresses: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        self.taken.lock().expect("no holder of this lock panics")
    }
}

impl Drop for TakenAddress {
    fn drop(&mut self) {
        self.addresses.lock().remove(&self.address);
    }
}
