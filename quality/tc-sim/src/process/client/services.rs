//! The service processes that live, by index: starts them, kills them, and finds the process that a
//! call from another service goes to.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ClientProcess;
use crate::process::installation::Installation;
use crate::world::Owner;

/// The services of a run.
pub(crate) struct ClientServices {
    pub(crate) installation: Arc<Installation>,
    processes: Mutex<Vec<Option<Arc<ClientProcess>>>>,
    lives: AtomicU64,
}

impl ClientServices {
    pub(crate) fn new(installation: &Arc<Installation>) -> Arc<Self> {
        let count = installation.world.plan.clients;
        Arc::new(Self {
            installation: Arc::clone(installation),
            processes: Mutex::new(vec![None; count]),
            lives: AtomicU64::new(0),
        })
    }

    /// Returns the number of services, alive or not.
    pub(crate) fn count(&self) -> usize {
        self.installation.world.plan.clients
    }

    /// Starts a process for a service, and its application.
    pub(crate) fn start(self: &Arc<Self>, index: usize) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let process = ClientProcess::start(self, index, life);
        self.lock()[index] = Some(Arc::clone(&process));
        process.start_application();
    }

    /// Kills a service's process. Another one starts after `down_for`.
    pub(crate) fn crash(self: &Arc<Self>, index: usize, down_for: u64) {
        let Some(process) = self.lock()[index].take() else { return };
        let Installation { world, network, .. } = &*self.installation;
        world.log(process.owner(), || "crashes".to_owned());
        process.die();
        world.kill(process.owner());
        network.client_died(index);
        let (services, world) = (Arc::clone(self), Arc::clone(world));
        self.installation.world.spawn(Owner::World, async move {
            world.sleep(down_for).await;
            services.start(index);
        });
    }

    /// Ends every process. They hold references to the services, and the services to them.
    pub(crate) fn close(&self) {
        for process in self.lock().iter_mut().filter_map(Option::take) {
            process.die();
        }
    }

    /// Returns a service's process, if it lives.
    pub(super) fn process(&self, index: usize) -> Option<Arc<ClientProcess>> {
        self.lock()[index].clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<ClientProcess>>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClientServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("count", &self.count()).finish_non_exhaustive()
    }
}
