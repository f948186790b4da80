//! A real coordinator in this process that can be killed.

use std::ops::{Deref, DerefMut};

use handfast_core::Coordinator;
use handfast_test_services::{EmbeddedCoordinator, until};

/// A coordinator on the embedded store, and a view of its named locks.
pub(crate) struct Tc(EmbeddedCoordinator);

impl Tc {
    /// Starts a coordinator on a free port.
    pub(crate) async fn start() -> Self {
        Self(EmbeddedCoordinator::start().await)
    }

    /// Reads something from the coordinator's state.
    pub(crate) async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) -> T {
        self.engine().view(look).await.unwrap()
    }

    /// Waits until this many requests stand in the queue of a lock. The coordinator notifies the
    /// waiters of a lock, and no program that watches them.
    pub(crate) async fn queue_of(&self, name: &'static str, waiting: usize) {
        let what = format!("{waiting} requests wait for {name}");
        until(&what, async || {
            let found = self.view(|coordinator| coordinator.named_lock(name)).await;
            found.map_or(0, |lock| lock.waiting) == waiting
        })
        .await;
    }
}

impl Deref for Tc {
    type Target = EmbeddedCoordinator;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Tc {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
