//! TLS on both ports, by rustls.
//!
//! gRPC leaves the handshakes to tonic; the admin port does its own in [`AdminListener`], several
//! at a time, so that a client that is slow to shake hands holds up nobody.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::accept::{Acceptor, Connection};
use crate::config::TlsConfig;

/// Handshakes under way at a time; further connections wait in the system's queue.
const HANDSHAKES_MAX: usize = 256;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A TLS file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read as PEM.
    #[error("tls file {path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// Certificate and key do not go together.
    #[error("tls certificate {path}: {source}")]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// What tonic needs for the gRPC port; `None` without a certificate.
///
/// # Errors
///
/// A file cannot be read.
pub fn grpc_tls(config: &TlsConfig) -> Result<Option<ServerTlsConfig>, TlsError> {
    let Some((certificate, key)) = config.certificate.as_ref().zip(config.private_key.as_ref())
    else {
        return Ok(None);
    };
    let identity = Identity::from_pem(read(certificate)?, read(key)?);
    let mut tls = ServerTlsConfig::new().identity(identity);
    if let Some(authority) = &config.client_authority {
        // tonic's own complaint would not name the file.
        read_chain(authority)?;
        tls = tls.client_ca_root(Certificate::from_pem(read(authority)?));
    }
    Ok(Some(tls))
}

/// What the admin port needs; `None` without a certificate. The admin API knows its callers by
/// token and asks no certificate of them.
///
/// # Errors
///
/// A file cannot be read, or certificate and key do not go together.
pub fn admin_acceptor(config: &TlsConfig) -> Result<Option<TlsAcceptor>, TlsError> {
    let Some((certificate, key)) = config.certificate.as_ref().zip(config.private_key.as_ref())
    else {
        return Ok(None);
    };
    let unusable = |source| TlsError::Unusable { path: certificate.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(read_chain(certificate)?, read_key(key)?)
        .map_err(unusable)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(server))))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| unreadable(path, error.to_string()))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(path, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(path, "there is no certificate in it".to_owned()));
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, error.to_string()))
}

fn unreadable(path: &Path, what: String) -> TlsError {
    TlsError::Unreadable { path: path.to_owned(), what }
}

/// A connection that has shaken hands, and whose it is.
type Shaken = (TlsStream<Connection>, SocketAddr);

/// The admin port: plain connections as they come, or encrypted ones once they have shaken hands.
pub struct AdminListener {
    tcp: Acceptor,
    tls: Option<TlsAcceptor>,
    handshakes: FuturesUnordered<BoxFuture<'static, Option<Shaken>>>,
}

impl std::fmt::Debug for AdminListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminListener")
            .field("tcp", &self.tcp)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}

impl AdminListener {
    /// Serves what the acceptor lets in, encrypted where there is a certificate.
    #[must_use]
    pub fn new(tcp: Acceptor, tls: Option<TlsAcceptor>) -> Self {
        Self { tcp, tls, handshakes: FuturesUnordered::new() }
    }

    /// Waits for a connection that is ready to speak. Giving up the wait loses none.
    pub async fn accept(&mut self) -> (Either<Connection, TlsStream<Connection>>, SocketAddr) {
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
                (stream, address) = self.tcp.accept(),
                    if self.handshakes.len() < HANDSHAKES_MAX =>
                {
                    self.handshakes.push(Box::pin(shake_hands(tls.clone(), stream, address)));
                }
            }
        }
    }
}

async fn shake_hands(tls: TlsAcceptor, stream: Connection, address: SocketAddr) -> Option<Shaken> {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some((stream, address)),
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "tls handshake failed");
            None
        }
        Err(_elapsed) => {
            tracing::debug!(%address, "tls handshake took too long");
            None
        }
    }
}
