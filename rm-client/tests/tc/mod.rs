//! A real coordinator in this process that can be killed, and a wire that can be cut.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use handfast_test_services::EmbeddedCoordinator as Tc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The directions whose bytes are dropped.
#[derive(Default)]
struct Swallowed {
    requests: AtomicBool,
    answers: AtomicBool,
}

/// A connection between a client and a coordinator that can lose bytes of either direction.
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

    /// Drops all later answers; requests arrive.
    pub(crate) fn swallow_answers(&self) {
        self.swallowed.answers.store(true, Ordering::SeqCst);
    }

    /// Drops all later requests; the client sends them in vain.
    pub(crate) fn swallow_requests(&self) {
        self.swallowed.requests.store(true, Ordering::SeqCst);
    }

    /// Cuts every connection; later connections lose nothing.
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
