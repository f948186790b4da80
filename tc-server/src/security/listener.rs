//! Connections that are ready to speak: plain ones as they come, encrypted ones once they have
//! shaken hands.
//!
//! Hands are shaken with many clients at a time, so that one that is slow or silent holds up
//! nobody, and for a limited time, so that none keeps its place for ever. At most as many shake
//! hands as the acceptor has places (BOUNDED).

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

/// A connection that is ready to speak.
pub type Ready = Either<Connection, TlsStream<Connection>>;

type Shaken = (TlsStream<Connection>, SocketAddr);

/// A port whose connections are encrypted where there is a certificate.
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
    /// Serves what the acceptor lets in. A client that has not shaken hands within the limit is let
    /// go.
    #[must_use]
    pub fn new(tcp: Acceptor, tls: Option<TlsAcceptor>, handshake_limit: Duration) -> Self {
        Self { tcp, tls, handshake_limit, handshakes: FuturesUnordered::new() }
    }

    /// Waits for a connection that is ready to speak. Giving up the wait loses none.
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

    /// The connections one after another, without an end.
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
        // A client that has gone, such as a probe, has sent nothing that is wrong.
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
