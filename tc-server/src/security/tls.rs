//! TLS on the ports and between nodes, by rustls: builds acceptors and a connector from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::config::TlsConfig;

/// The protocol of connections that one node passes on to another's port for clients of Seata.
const PASSED_ON_SEATA: &[u8] = b"handfast-seata";

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

/// Returns the acceptor of connections that other nodes pass on to the port for clients of Seata,
/// or `None` without a certificate. It asks for a client certificate as the gRPC port does.
///
/// # Errors
///
/// A file cannot be read, or certificate and key do not match.
pub fn member_acceptor(config: &TlsConfig) -> Result<Option<TlsAcceptor>, TlsError> {
    acceptor(config, config.client_authority.as_deref(), PASSED_ON_SEATA)
}

/// Returns the other side of [`member_acceptor`], or `None` without a certificate. It trusts the
/// authority, or those of the system, and shows this node's certificate where nodes ask for one.
///
/// # Errors
///
/// A file cannot be read, or certificate and key do not match.
pub fn member_connector(
    config: &TlsConfig,
    authority: Option<&Path>,
) -> Result<Option<TlsConnector>, TlsError> {
    let Some((certificate, key)) = config.certificate.as_ref().zip(config.private_key.as_ref())
    else {
        return Ok(None);
    };
    let unusable = |source| TlsError::Unusable { path: certificate.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let client = match authority {
        Some(path) => client.with_root_certificates(read_roots(path)?),
        None => client.with_platform_verifier().map_err(unusable)?,
    };
    let mut client = if config.client_authority.is_some() {
        client.with_client_auth_cert(read_chain(certificate)?, read_key(key)?).map_err(unusable)?
    } else {
        client.with_no_client_auth()
    };
    client.alpn_protocols = vec![PASSED_ON_SEATA.to_vec()];
    Ok(Some(TlsConnector::from(Arc::new(client))))
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
    let roots = Arc::new(read_roots(path)?);
    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| unreadable(path, error.to_string()))
}

fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path)? {
        let unusable = |source| TlsError::Unusable { path: path.to_owned(), source };
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
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
