//! A wire between a service and a server, carried by this process, that can be cut or go silent.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How late each piece of what is said arrives on a slow wire.
const SLOW_BY: Duration = Duration::from_millis(300);

/// The state of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireState {
    /// Carries everything.
    Sound,
    /// Carries everything late, in both directions, as a server answers whose disk is slow.
    Slow,
    /// Breaks every connection and takes none.
    Cut,
    /// Keeps connections and carries nothing, as a network does that loses every packet. What was
    /// sent meanwhile arrives afterwards.
    Silent,
    /// Carries what the client sends, and none of the answers.
    Deaf,
}

impl fmt::Display for WireState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "sound",
            Self::Slow => "slow",
            Self::Cut => "cut",
            Self::Silent => "silent",
            Self::Deaf => "deaf one way",
        })
    }
}

/// A wire to one server.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    state: watch::Sender<WireState>,
    /// Counts how often every connection was broken.
    breaks: watch::Sender<u64>,
    listening: JoinHandle<()>,
}

impl Wire {
    /// Lays a wire to a server.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(server: SocketAddr) -> Result<Self> {
        Self::from(Ipv4Addr::LOCALHOST.into(), server).await
    }

    /// Lays a wire to a server, for clients that reach this host at an address.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn from(here: IpAddr, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((here, 0)).await?;
        let address = listener.local_addr()?;
        let (state, watched) = watch::channel(WireState::Sound);
        let (breaks, broken) = watch::channel(0);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // In this order: a cut is set first and breaks connections then.
                let mut broken = broken.clone();
                broken.mark_unchanged();
                if *watched.borrow() != WireState::Cut {
                    tokio::spawn(carry(client, server, watched.clone(), broken));
                }
            }
        });
        Ok(Self { address, state, breaks, listening })
    }

    /// Returns the address at which clients reach the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes its state, for existing and for later connections.
    pub fn set(&self, state: WireState) {
        self.state.send_replace(state);
        if state == WireState::Cut {
            self.break_all();
        }
    }

    /// Breaks every connection that is there.
    pub fn break_all(&self) {
        self.breaks.send_modify(|breaks| *breaks += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listening.abort();
        self.set(WireState::Cut);
    }
}

/// Carries one connection until either side ends it or the wire is cut.
async fn carry(
    client: TcpStream,
    server: SocketAddr,
    state: watch::Receiver<WireState>,
    mut broken: watch::Receiver<u64>,
) {
    let both = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        // Small packets must not wait for more data: the tests depend on their timing.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let asking = one_way(from_client, to_server, state.clone(), |state| {
            matches!(state, WireState::Sound | WireState::Slow | WireState::Deaf)
        });
        let answering = one_way(from_server, to_client, state, |state| {
            matches!(state, WireState::Sound | WireState::Slow)
        });
        tokio::join!(asking, answering);
    };
    tokio::select! {
        () = both => {}
        _ = broken.changed() => {}
    }
}

/// Carries one direction; the end of what comes in is passed on.
async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<WireState>,
    passes: impl Fn(WireState) -> bool,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let Ok(passing) = state.wait_for(|state| passes(*state)).await.map(|state| *state) else {
            return;
        };
        if passing == WireState::Slow {
            // The delay is the fault itself.
            sleep(SLOW_BY).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    // The other end may be gone already.
    let _ = to.shutdown().await;
}
