//! Finds out why a member closes a connection. It checks the client's certificate after the
//! handshake, as far as the client can see, and what it then says ends the connection before a
//! request is under way that could report it.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::Uri;

use super::options::Certificates;

/// Shakes hands with a member and waits for its first message.
pub(super) async fn try_out(member: &Uri, certificates: &Certificates) -> io::Result<()> {
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
