//! A real coordinator in this process that can be killed.

use std::net::{Ipv4Addr, SocketAddr};

use handfast_core::Coordinator;
use handfast_server::embedded::{RunningServer, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A coordinator on the embedded store, in a runtime of its own.
pub(crate) struct Tc {
    address: SocketAddr,
    directory: TempDir,
    life: Option<(Runtime, RunningServer)>,
}

impl Tc {
    /// Starts one on a free port.
    pub(crate) async fn start() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut tc = Self { address, directory: TempDir::new().unwrap(), life: None };
        tc.restart().await;
        tc
    }

    /// Returns the endpoint for clients, which is the same after a restart.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts it again, on the same port and records.
    pub(crate) async fn restart(&mut self) {
        let server = Server::builder();
        let server = server.directory(self.directory.path()).listen(self.address.to_string());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let server = runtime.spawn(server.start()).await.unwrap().unwrap();
        self.address = server.address();
        self.life = Some((runtime, server));
    }

    /// Kills it in the middle of its work: its tasks are dropped where they stand.
    pub(crate) async fn kill(&mut self) {
        let Some((runtime, server)) = self.life.take() else { return };
        let killed = tokio::task::spawn_blocking(move || {
            drop(server);
            drop(runtime);
        });
        killed.await.unwrap();
    }

    /// Reads what the coordinator has stored.
    pub(crate) async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Coordinator) -> T + Send + 'static,
    ) -> T {
        self.life.as_ref().unwrap().1.engine().view(look).await.unwrap()
    }

    /// Waits until a number of requests is in the queue of a lock.
    pub(crate) async fn queue_of(&self, name: &'static str, waiting: usize) {
        loop {
            let found = self.view(|coordinator| coordinator.named_lock(name)).await;
            if found.map_or(0, |lock| lock.waiting) == waiting {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        if let Some((runtime, server)) = self.life.take() {
            // An async test must not wait for a runtime to end.
            runtime.shutdown_background();
            drop(server);
        }
    }
}
