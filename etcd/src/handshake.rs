//! Finds out why a member closes a connection. For the client the handshake has ended when the
//! member checks the client's certificate, and the member's alert ends the connection before a
//! request is under way that could report it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::Uri;

use crate::auth;
use crate::error::EtcdError;
use crate::options::{Certificates, EtcdOptions};

impl EtcdOptions {
    /// Finds out why a cluster does not answer, and returns that or the error. With several
    /// members, one that fails is left out without a message, so each is asked alone, for so long
    /// at most.
    pub async fn explain_failure(&self, error: EtcdError, limit: Duration) -> EtcdError {
        let (Some(certificates), Ok(endpoints)) = (self.certificates(), self.endpoints()) else {
            return error;
        };
        if !error.may_pass() {
            return error;
        }
        for endpoint in endpoints {
            let tried = try_out(endpoint.uri(), &certificates);
            if let Ok(Err(said)) = tokio::time::timeout(limit, tried).await
                && let Some(denied) = auth::denied(&said.to_string())
            {
                return denied;
            }
        }
        error
    }
}

/// Shakes hands with a member and waits for its first message.
async fn try_out(member: &Uri, certificates: &Certificates) -> io::Result<()> {
    let (Some(host), Some(port)) = (member.host(), member.port_u16()) else { return Ok(()) };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config(certificates).map_err(io::Error::other)?));
    let connection = TcpStream::connect((host, port)).await?;
    let mut connection = connector.connect(name, connection).await?;
    connection.read_u8().await.map(drop)
}

fn config(
    certificates: &Certificates,
) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificates.ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = match &certificates.identity {
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
