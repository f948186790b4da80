//! Accepts connections and completes the TLS handshake of encrypted ones.
//!
//! Handshakes run concurrently, so that a slow or silent client does not delay others, and have a
//! time limit, so that none keeps its connection forever. There are at most as many handshakes as
//! the acceptor allows connections (BOUNDED).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{Stream, StreamExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::accept::{Acceptor, Connection};
use crate::turned_away::{PortName, Why, note};

/// A connection that is ready for requests.
pub type Ready = Either<Connection, TlsStream<Connection>>;

type Shaken = (TlsStream<Connection>, SocketAddr);

/// A port whose connections are encrypted if there is a certificate.
pub struct Listener {
    tcp: Acceptor,
    tls: Option<TlsAcceptor>,
    handshake_limit: Duration,
    handshakes: FuturesUnordered<BoxFuture<'static, Option<Shaken>>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("tcp", &self.tcp)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Creates a listener on an acceptor. A client that does not complete the handshake within the
    /// limit is disconnected.
    #[must_use]
    pub fn new(tcp: Acceptor, tls: Option<TlsAcceptor>, handshake_limit: Duration) -> Self {
        Self { tcp, tls, handshake_limit, handshakes: FuturesUnordered::new() }
    }

    /// Waits for a connection that is ready for requests. Cancel safe: no connection is lost.
    pub async fn accept(&mut self) -> (Ready, SocketAddr) {
        let Some(tls) = self.tls.clone() else {
            let (stream, address) = self.tcp.accept().await;
            return (Either::Left(stream), address);
        };
        loop {
            tokio::select! {
                Some(done) = self.handshakes.next() => {
                    if let Some((stream, address)) = done {
                        return (Either::Right(stream), address);
                    }
                }
                (stream, address) = self.tcp.accept() => {
                    let (port, limit) = (self.tcp.port(), self.handshake_limit);
                    let shaking = shake_hands(tls.clone(), port, stream, address, limit);
                    self.handshakes.push(Box::pin(shaking));
                }
            }
        }
    }

    /// Returns the connections as an endless stream.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Ready>> + Send {
        stream::unfold(self, async |mut listener| {
            let (connection, _) = listener.accept().await;
            Some((Ok(connection), listener))
        })
    }
}

async fn shake_hands(
    tls: TlsAcceptor,
    port: PortName,
    stream: Connection,
    address: SocketAddr,
    limit: Duration,
) -> Option<Shaken> {
    match tokio::time::timeout(limit, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some((stream, address)),
        // A client that disconnects, such as a probe, has sent nothing wrong.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            tracing::debug!(%address, %error, "tls handshake broken off");
            None
        }
        Ok(Err(error)) => {
            note(port, Why::Handshake, Some(&address), &error);
            None
        }
        Err(_elapsed) => {
            note(port, Why::Silent, Some(&address), &"no TLS handshake in time");
            None
        }
    }
}
