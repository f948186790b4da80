//! The coordinator of a test: it dies, and comes back with its records.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use handfast_server::clock::Clock;
use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server, StartError};
use handfast_server::engine::EngineHandle;
use handfast_server::store::Store;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::clock::TestClock;
use crate::gate::Gate;

/// The address in XIDs. Clients do not look into an XID, so it need not lead anywhere.
const ADDRESS: &str = "handfast-test:7091";

/// A coordinator that can be ended and started at any time.
#[derive(Debug)]
pub(crate) struct Revivable {
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
    standing: watch::Sender<Life>,
    running: Mutex<Option<RunningServer>>,
    /// One death at a time.
    reviving: AsyncMutex<()>,
}

/// Whether the coordinator runs.
#[derive(Clone, Debug)]
pub(crate) enum Life {
    Dead,
    Alive { address: SocketAddr, engine: EngineHandle },
    Failed(Arc<str>),
}

impl Revivable {
    /// Starts a coordinator without records, and returns what its death reports to
    /// [`revive_at_each`](Self::revive_at_each).
    pub(crate) async fn start() -> Result<(Arc<Self>, UnboundedReceiver<()>), StartError> {
        let (deaths, died) = unbounded_channel();
        let coordinator = Self {
            gate: Arc::new(Gate::new(deaths)),
            clock: Arc::new(TestClock::start()),
            standing: watch::Sender::new(Life::Dead),
            running: Mutex::default(),
            reviving: AsyncMutex::default(),
        };
        coordinator.revive().await?;
        Ok((Arc::new(coordinator), died))
    }

    /// Ends the coordinator and starts it again at each death that the store has reported.
    pub(crate) async fn revive_at_each(self: Arc<Self>, mut died: UnboundedReceiver<()>) {
        while died.recv().await.is_some() {
            self.die_and_revive().await;
        }
    }

    /// Ends the coordinator as a crash does, and starts it again from its records.
    pub(crate) async fn die_and_revive(&self) {
        let _one = self.reviving.lock().await;
        self.standing.send_replace(Life::Dead);
        if let Some(server) = self.take_running() {
            server.crash().await;
        }
        if let Err(error) = self.revive().await {
            self.standing.send_replace(Life::Failed(error.to_string().into()));
        }
    }

    async fn revive(&self) -> Result<(), StartError> {
        // Sooner than in production, where a database that is down must not be hammered.
        let pacing = dispatch::Settings {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            ..dispatch::Settings::default()
        };
        let server = Server::builder()
            .store(Arc::clone(&self.gate) as Arc<dyn Store>)
            .clock(Arc::clone(&self.clock))
            .advertise(ADDRESS)
            .dispatch(pacing)
            .start()
            .await?;
        let (address, engine) = (server.address(), server.engine().clone());
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.standing.send_replace(Life::Alive { address, engine });
        Ok(())
    }

    /// Ends the coordinator for good.
    pub(crate) fn end(&self) {
        drop(self.take_running());
        self.standing.send_replace(Life::Failed("the test has ended".into()));
    }

    fn take_running(&self) -> Option<RunningServer> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns where the coordinator listens. Waits while it is dead.
    ///
    /// # Errors
    /// Why it cannot be started again.
    pub(crate) async fn address(&self) -> Result<SocketAddr, Arc<str>> {
        self.alive().await.map(|(address, _)| address)
    }

    /// Returns the engine. Waits while the coordinator is dead.
    ///
    /// # Errors
    /// Why it cannot be started again.
    pub(crate) async fn engine(&self) -> Result<EngineHandle, Arc<str>> {
        self.alive().await.map(|(_, engine)| engine)
    }

    async fn alive(&self) -> Result<(SocketAddr, EngineHandle), Arc<str>> {
        let mut standing = self.standing.subscribe();
        let decided = standing.wait_for(|it| !matches!(it, Life::Dead)).await;
        // The sender is a part of `self`, so waiting cannot fail.
        match decided.map(|it| it.clone()) {
            Ok(Life::Alive { address, engine }) => Ok((address, engine)),
            Ok(Life::Failed(reason)) => Err(reason),
            Ok(Life::Dead) | Err(_) => Err("the test has ended".into()),
        }
    }

    /// Whether it runs now.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(&*self.standing.borrow(), Life::Alive { .. })
    }

    /// Returns its store.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}
