//! The other nodes that share the store: connections from them and to them.
//!
//! They connect to the port for clients. If nodes have certificates, connections between nodes are
//! encrypted, and each shows its certificate as on the port of the native API; clients' connections
//! are not encrypted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use handfast_seata_wire::frame::{FirstBytes, first_bytes};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_util::either::Either;

use super::closing::ConnectionEnd;
use super::preface::{ACCEPTED, Opening, opening, preface};
use super::reading::read_more;
use crate::accept::Connection;
use crate::config::Config;
use crate::security::{TlsError, member_acceptor, member_connector};

/// How long it may take until the leader has accepted a connection that is passed on to it.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);

/// The first byte of a TLS handshake. No frame of Seata begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that was accepted.
pub(super) type Accepted = Either<Connection, server::TlsStream<Connection>>;

/// A connection to another node.
pub(super) type Dialed = Either<TcpStream, client::TlsStream<TcpStream>>;

/// The way to and from the other nodes.
#[derive(Clone)]
pub struct Members {
    acceptor: Option<TlsAcceptor>,
    connector: Option<TlsConnector>,
}

/// A connection whose first bytes have been read.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) io: Accepted,
    /// The bytes that were read and are still to be looked at.
    pub(super) bytes: BytesMut,
    /// The address of the client.
    pub(super) client: SocketAddr,
    pub(super) from: Origin,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    /// Another node, which passes on the connection of a client.
    Member,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_encrypted = self.connector.is_some();
        f.debug_struct("Members").field("is_encrypted", &is_encrypted).finish_non_exhaustive()
    }
}

impl Members {
    /// Sets up the way to the other nodes, which have certificates if this one has.
    ///
    /// # Errors
    ///
    /// A certificate cannot be used.
    pub fn new(config: &Config) -> Result<Self, TlsError> {
        let acceptor = member_acceptor(&config.tls)?;
        let connector = member_connector(&config.tls, config.cluster.authority.as_deref())?;
        Ok(Self { acceptor, connector })
    }

    /// Reads the beginning of a connection: which protocol it is, and from where it comes.
    pub(super) async fn open(
        &self,
        io: Connection,
        peer: SocketAddr,
    ) -> Result<Opened, ConnectionEnd> {
        let is_tls = io.first_byte().await? == Some(TLS_HANDSHAKE);
        match &self.acceptor {
            Some(tls) if is_tls => {
                let io = tls.accept(io).await.map_err(ConnectionEnd::Handshake)?;
                let opened = read_opening(Either::Right(io), peer).await?;
                // The protocol of clients has no encryption.
                expect(opened, Origin::Member)
            }
            // A node that shows no certificate is no node.
            Some(_) => expect(read_opening(Either::Left(io), peer).await?, Origin::Client),
            None => read_opening(Either::Left(io), peer).await,
        }
    }

    /// Connects to the leader for a client, and waits until it has accepted that.
    pub(super) async fn dial(&self, leader: &str, client: SocketAddr) -> io::Result<Dialed> {
        let dialing = async {
            let mut io = self.connect(leader).await?;
            io.write_all(&preface(client)).await?;
            io.flush().await?;
            // Read to its exact length: what follows is the client's.
            let mut answer = [0; ACCEPTED.len()];
            io.read_exact(&mut answer).await?;
            if answer != *ACCEPTED {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "another answer"));
            }
            Ok(io)
        };
        timeout(ATTEMPT_LIMIT, dialing).await?
    }

    async fn connect(&self, leader: &str) -> io::Result<Dialed> {
        let tcp = TcpStream::connect(leader).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.connector else { return Ok(Either::Left(tcp)) };
        let host = leader.rsplit_once(':').map_or(leader, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Either::Right(tls.connect(name, tcp).await?))
    }
}

async fn read_opening(mut io: Accepted, peer: SocketAddr) -> Result<Opened, ConnectionEnd> {
    let mut bytes = BytesMut::new();
    loop {
        match (opening(&bytes), first_bytes(&bytes)) {
            (Opening::PassedOn { client, length }, _) => {
                bytes.advance(length);
                return Ok(Opened { io, bytes, client, from: Origin::Member });
            }
            (Opening::Other, FirstBytes::Seata(_) | FirstBytes::SeataV0) => {
                return Ok(Opened { io, bytes, client: peer, from: Origin::Client });
            }
            (Opening::Undecided, _) | (Opening::Other, FirstBytes::Undecided) => {
                read_more(&mut io, &mut bytes).await?;
            }
            (Opening::Damaged | Opening::Other, other) => {
                return Err(ConnectionEnd::Protocol(other));
            }
        }
    }
}

fn expect(opened: Opened, from: Origin) -> Result<Opened, ConnectionEnd> {
    if opened.from == from { Ok(opened) } else { Err(ConnectionEnd::Protocol(FirstBytes::Unknown)) }
}
