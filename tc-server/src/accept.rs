//! Accepts connections: a bounded number at a time, and without spinning on failures.
//!
//! A connection beyond the bound is closed at once, so that its client notices it and tries
//! elsewhere or later. In the operating system's queue it would only hang. The front ends limit the
//! other costs of a connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::descriptors;
use crate::turned_away::{PortName, Why, note};

/// The pause after a failed accept. Without file descriptors every further attempt would fail at
/// once.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// A listening socket that accepts a limited number of connections at a time (BOUNDED).
#[derive(Debug)]
pub struct Acceptor {
    tcp: TcpListener,
    room: Arc<Semaphore>,
    port: PortName,
}

/// An accepted connection, which counts towards the limit until it is dropped.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Acceptor {
    /// Accepts on a bound socket. `port` is its name in logs and metrics.
    #[must_use]
    pub fn new(tcp: TcpListener, connections_max: usize, port: PortName) -> Self {
        let places = connections_max.min(Semaphore::MAX_PERMITS);
        Self { tcp, room: Arc::new(Semaphore::new(places)), port }
    }

    /// Returns its name in logs and metrics.
    pub(crate) fn port(&self) -> PortName {
        self.port
    }

    /// Waits for a connection for which there is room.
    pub async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.tcp.accept().await {
                Ok((tcp, address)) => {
                    if let Some(connection) = self.admit(tcp, address) {
                        return (connection, address);
                    }
                }
                // The client went away before it was accepted; the listening socket is not
                // affected.
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    let exhausted = descriptors::are_exhausted(&error);
                    let why = if exhausted { Why::NoDescriptor } else { Why::Failed };
                    note(self.port, why, None, &error);
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    fn admit(&mut self, tcp: TcpStream, address: SocketAddr) -> Option<Connection> {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            note(self.port, Why::NoRoom, Some(&address), &"too many connections: closed at once");
            return None;
        };
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(port = ?self.port, %address, %error, "the client has gone already");
            return None;
        }
        Some(Connection { tcp, _place: place })
    }
}

impl Connection {
    /// Waits for the first byte and leaves it to be read. Returns `None` if the client sends none.
    pub(crate) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let count = self.tcp.peek(&mut first).await?;
        Ok((count == 1).then_some(first[0]))
    }
}

/// Returns whether the error concerns only this connection, and not the next one.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.tcp.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
