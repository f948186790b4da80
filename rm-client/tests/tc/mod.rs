//! A real coordinator in this process that can be killed, and a wire that can be cut.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A coordinator on the embedded store, in a runtime of its own.
pub(crate) struct Tc {
    address: SocketAddr,
    directory: TempDir,
    life: Option<(Runtime, RunningServer)>,
}

impl Tc {
    /// Starts one on a free port.
    pub(crate) async fn start() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let directory = TempDir::new().expect("a directory is to be had");
        let mut tc = Self { address: free, directory, life: None };
        tc.restart().await;
        tc
    }

    /// The endpoint for clients, the same after a restart.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The engine inside, for what only operators can do.
    pub(crate) fn engine(&self) -> &handfast_server::engine::EngineHandle {
        let (_, server) = self.life.as_ref().expect("the coordinator runs");
        server.engine()
    }

    /// Who is connected, as the coordinator sees it.
    pub(crate) fn dispatcher(&self) -> &dispatch::Dispatcher {
        let (_, server) = self.life.as_ref().expect("the coordinator runs");
        server.dispatcher()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it again, on the same port and records.
    pub(crate) async fn restart(&mut self) {
        let pacing = dispatch::Settings {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            ..dispatch::Settings::default()
        };
        let server = Server::builder()
            .directory(self.directory.path())
            .listen(self.address.to_string())
            .dispatch(pacing);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(1).enable_all().build().expect("a runtime is to be had");
        let server = runtime.spawn(server.start()).await.expect("starting does not panic");
        let server = server.expect("the coordinator starts");
        self.address = server.address();
        self.life = Some((runtime, server));
    }

    /// Ends it in the middle of whatever it does: its tasks are dropped where they stand.
    pub(crate) async fn kill(&mut self) {
        let Some((runtime, server)) = self.life.take() else { return };
        let killed = tokio::task::spawn_blocking(move || {
            drop(server);
            drop(runtime);
        });
        killed.await.expect("killing does not panic");
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        if let Some((runtime, server)) = self.life.take() {
            // Within an async test a runtime must not be waited for.
            runtime.shutdown_background();
            drop(server);
        }
    }
}

/// What does not arrive.
#[derive(Default)]
struct Swallowed {
    requests: AtomicBool,
    answers: AtomicBool,
}

/// Stands between a client and a coordinator.
pub(crate) struct Wire {
    address: SocketAddr,
    swallowed: Arc<Swallowed>,
    cuts: watch::Sender<u64>,
}

impl Wire {
    pub(crate) async fn to(coordinator: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let swallowed = Arc::<Swallowed>::default();
        let (cuts, cut) = watch::channel(0);
        let swallow = Arc::clone(&swallowed);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, coordinator, Arc::clone(&swallow), cut.clone()));
            }
        });
        Self { address, swallowed, cuts }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From here on requests arrive and answers do not.
    pub(crate) fn swallow_answers(&self) {
        self.swallowed.answers.store(true, Ordering::SeqCst);
    }

    /// From here on requests are sent and do not arrive.
    pub(crate) fn swallow_requests(&self) {
        self.swallowed.requests.store(true, Ordering::SeqCst);
    }

    /// Cuts every connection; later ones work both ways.
    pub(crate) fn mend(&self) {
        self.swallowed.requests.store(false, Ordering::SeqCst);
        self.swallowed.answers.store(false, Ordering::SeqCst);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(
    client: TcpStream,
    coordinator: SocketAddr,
    swallowed: Arc<Swallowed>,
    mut cut: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(coordinator).await else { return };
    cut.mark_unchanged();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = copy(client_read, server_write, &swallowed.requests) => {}
        () = copy(server_read, client_write, &swallowed.answers) => {}
        _ = cut.changed() => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    swallowed: &AtomicBool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let swallowed = swallowed.load(Ordering::SeqCst);
        if !swallowed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
