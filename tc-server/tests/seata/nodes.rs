//! Ports for clients of Seata that are told who leads, without a store that decides it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use handfast_core::Epoch;
use handfast_server::accept::Acceptor;
use handfast_server::clock::{Clock, WallClock};
use handfast_server::config::Config;
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{self, Engine, Leadership};
use handfast_server::seata::{self, Members, SeataFrontend};
use handfast_server::store::{CoordinatorNode, Leader, MemoryStore};
use handfast_server::turned_away::PortName;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::{Client, PATIENCE};

/// A node whose leadership the test sets.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    dispatcher: Dispatcher,
    leadership: watch::Sender<Leadership>,
    /// Its engine leads throughout.
    _engine: Engine,
    _stop: DropGuard,
}

impl Node {
    /// Starts a node that knows no leader.
    pub(crate) async fn start() -> Self {
        Self::start_as(&Config::tiny(), |_| {}).await
    }

    /// Starts one with certificates of this configuration.
    pub(crate) async fn start_as(
        config: &Config,
        change: impl FnOnce(&mut seata::Settings),
    ) -> Self {
        // An end for silence would come while a test waits for an end of another cause.
        let silence_limit = 2 * PATIENCE;
        let mut settings = seata::Settings { silence_limit, ..seata::Settings::default() };
        change(&mut settings);
        let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
        let dispatch = dispatch::Settings::default();
        let (dispatcher, _timer) = Dispatcher::start(Arc::clone(&clock), dispatch, 1);
        let phase_two = Arc::new(dispatcher.clone());
        let store = Arc::new(MemoryStore::new());
        let engine = engine::Settings::new("tc:8091");
        let engine = Engine::start(store, clock, engine, phase_two).await.unwrap();
        let leadership = watch::Sender::new(Leadership::Following(Leader::Unknown));
        let (handle, seen) = (engine.handle.clone(), leadership.subscribe());
        let members = Some(Members::new(config).unwrap());
        let front = SeataFrontend::new(handle, seen, dispatcher.clone(), settings, members);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let acceptor = Acceptor::new(listener, 64, PortName::Seata);
        tokio::spawn(front.serve(acceptor, stop.clone()));
        Self { address, dispatcher, leadership, _engine: engine, _stop: stop.drop_guard() }
    }

    /// Starts a node that leads in the first epoch.
    pub(crate) async fn start_leader() -> Self {
        let node = Self::start().await;
        node.stands(Leadership::Leading(Epoch(1)));
        node
    }

    pub(crate) fn stands(&self, leadership: Leadership) {
        self.leadership.send_replace(leadership);
    }

    /// Tells the node that the node at this address leads.
    pub(crate) fn follows(&self, leader: impl ToString, epoch: u64) {
        let node = CoordinatorNode {
            id: "leader".to_owned(),
            version: "1".to_owned(),
            grpc: "leader:7091".to_owned(),
            admin: "leader:7092".to_owned(),
            seata: Some(leader.to_string()),
        };
        self.stands(Leadership::Following(Leader::Elsewhere { epoch: Epoch(epoch), node }));
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect_to(self.address, "2.3.0").await
    }

    /// Returns the addresses of the clients that are registered here, as operators see them.
    pub(crate) fn peers(&self) -> Vec<String> {
        let processes = self.dispatcher.processes_within(64, 64);
        processes.iter().map(|it| it.process.peer.to_string()).collect()
    }
}

/// Keeps settings short in which a client must not wait for long.
pub(crate) fn impatient(settings: &mut seata::Settings) {
    settings.leader_wait = Duration::from_millis(300);
}
