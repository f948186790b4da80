//! TLS on the gRPC and admin ports, by rustls: builds acceptors from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;

/// A TLS file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read as PEM.
    #[error("tls file {path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
    /// Certificate and key do not match.
    #[error("tls certificate {path}: {source}")]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// Returns the acceptor of the gRPC port, or `None` without a certificate. If a client authority is
/// configured, a client without a certificate signed by it is refused.
///
/// # Errors
///
/// A file cannot be read, or certificate and key do not match.
pub fn grpc_acceptor(config: &TlsConfig) -> Result<Option<TlsAcceptor>, TlsError> {
    acceptor(config, config.client_authority.as_deref(), b"h2")
}

/// Returns the acceptor of the admin port, or `None` without a certificate. The admin API
/// authenticates callers by token and requires no client certificate.
///
/// # Errors
///
/// A file cannot be read, or certificate and key do not match.
pub fn admin_acceptor(config: &TlsConfig) -> Result<Option<TlsAcceptor>, TlsError> {
    acceptor(config, None, b"http/1.1")
}

fn acceptor(
    config: &TlsConfig,
    client_authority: Option<&Path>,
    protocol: &[u8],
) -> Result<Option<TlsAcceptor>, TlsError> {
    let Some((certificate, key)) = config.certificate.as_ref().zip(config.private_key.as_ref())
    else {
        return Ok(None);
    };
    let unusable = |source| TlsError::Unusable { path: certificate.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = client_verifier(client_authority, &provider)?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(read_chain(certificate)?, read_key(key)?)
        .map_err(unusable)?;
    server.alpn_protocols = vec![protocol.to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(server))))
}

fn client_verifier(
    authority: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let Some(path) = authority else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path)? {
        let unusable = |source| TlsError::Unusable { path: path.to_owned(), source };
        roots.add(certificate).map_err(unusable)?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| unreadable(path, error.to_string()))
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
