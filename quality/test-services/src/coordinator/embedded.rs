//! A coordinator inside the test's own process, which can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server, StartError};
use handfast_server::engine::EngineHandle;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// The time within which a port must be free again.
const PORT_FREE_WITHIN: Duration = Duration::from_secs(60);
const START_EVERY: Duration = Duration::from_millis(50);

/// A coordinator on the embedded store, in a runtime of its own. Phase two is retried soon.
#[derive(Debug)]
pub struct EmbeddedCoordinator {
    address: SocketAddr,
    directory: TempDir,
    running: Option<(Runtime, RunningServer)>,
}

impl EmbeddedCoordinator {
    /// Starts a coordinator on a free port.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut coordinator = Self { address, directory, running: None };
        coordinator.restart().await;
        coordinator
    }

    /// Returns the coordinator that all tests of this process share. It ends with the process.
    ///
    /// # Panics
    /// If it does not start.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<EmbeddedCoordinator> = LazyLock::new(|| {
            // In a thread of its own: the caller may be in a runtime, which must not block on
            // another one.
            let started = std::thread::spawn(|| {
                let runtime = Builder::new_current_thread().build();
                runtime.expect("a runtime can be made").block_on(EmbeddedCoordinator::start())
            });
            started.join().expect("the coordinator starts")
        });
        &SHARED
    }

    /// Returns the endpoint for clients, the same after a restart.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address that the coordinator listens on, the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the engine, for what only operators can do.
    ///
    /// # Panics
    /// If the coordinator has been killed.
    pub fn engine(&self) -> &EngineHandle {
        self.server().engine()
    }

    /// Returns the dispatcher, which knows the connected processes.
    ///
    /// # Panics
    /// If the coordinator has been killed.
    pub fn dispatcher(&self) -> &dispatch::Dispatcher {
        self.server().dispatcher()
    }

    fn server(&self) -> &RunningServer {
        let (_, server) = self.running.as_ref().expect("the coordinator runs");
        server
    }

    /// Starts the coordinator again, on the same port and records.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        let configured = || {
            let pacing = dispatch::Settings {
                retry_delay_ms_min: 1,
                retry_delay_ms_max: 20,
                ..dispatch::Settings::default()
            };
            Server::builder()
                .directory(self.directory.path())
                .listen(self.address.to_string())
                .dispatch(pacing)
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let until = Instant::now() + PORT_FREE_WITHIN;
        let server = loop {
            let started = runtime.spawn(configured().start()).await;
            match started.expect("starting does not panic") {
                // Between a kill and a restart another program may use the port for a moment.
                Err(StartError::Listen { .. }) if Instant::now() < until => {
                    let pause = runtime.spawn(async { sleep(START_EVERY).await });
                    pause.await.expect("a pause does not panic");
                }
                started => break started.expect("the coordinator starts"),
            }
        };
        self.address = server.address();
        self.running = Some((runtime, server));
    }

    /// Ends the coordinator in the middle of its work: its tasks are dropped at the point that each
    /// has reached, as the death of a process would leave them.
    ///
    /// # Panics
    /// If a task panics while it is dropped.
    pub async fn kill(&mut self) {
        let Some((runtime, server)) = self.running.take() else { return };
        // A runtime blocks when it is dropped, which no async task may do.
        let killed = tokio::task::spawn_blocking(move || {
            drop(server);
            drop(runtime);
        });
        killed.await.expect("killing does not panic");
    }
}

impl Drop for EmbeddedCoordinator {
    fn drop(&mut self) {
        if let Some((runtime, server)) = self.running.take() {
            // An async test must not wait for another runtime.
            runtime.shutdown_background();
            drop(server);
        }
    }
}
