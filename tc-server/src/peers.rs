//! How a node reaches the others that share its store: while another node leads, requests that
//! clients send here are passed on to it, one hop.

use std::fs;
use std::path::Path;
use std::time::Duration;

use http::HeaderName;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::config::{Config, TlsConfig};
use crate::store::{SeenNode, watch};

/// Marks a request that another node has passed on. It is answered here or refused, so that two
/// nodes that each take the other for the leader do not pass it back and forth.
pub(crate) const PASSED_ON: HeaderName = HeaderName::from_static("handfast-passed-on");

/// How long connecting to another node may take. A leader that has gone is known to have gone once
/// its lease is over, so waiting longer is of no use.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How often a connection to another node is checked for life, and how long the answer may take.
/// Without it, a call to a machine that vanished would wait until TCP gives up. Too short: a busy
/// leader is taken for a dead one; too long: clients of this node wait for a dead one.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));

/// The other nodes, and clients of their ports. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peers {
    seen: watch::Receiver<Vec<SeenNode>>,
    http: reqwest::Client,
    tls: Option<ClientTlsConfig>,
}

/// The clients of other nodes cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("reaching other nodes: {0}")]
pub struct PeersError(String);

impl Peers {
    /// Sets up the clients. The other nodes have TLS if this one has. `seen` follows which nodes
    /// are there.
    ///
    /// # Errors
    ///
    /// When a certificate cannot be used.
    pub fn new(config: &Config, seen: watch::Receiver<Vec<SeenNode>>) -> Result<Self, PeersError> {
        let authority = config.cluster.authority.as_deref().map(read).transpose()?;
        let tls = config.tls.certificate.is_some();
        let tls = tls.then(|| client_tls(&config.tls, authority.as_deref())).transpose()?;
        Ok(Self { seen, http: http_client(authority.as_deref())?, tls })
    }

    /// Returns the nodes that have said that they are there, this one among them, as they were last
    /// read from the store.
    pub(crate) fn seen(&self) -> Vec<SeenNode> {
        self.seen.borrow().clone()
    }

    /// Returns the client for REST.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Returns the URL of a path on another node's admin port.
    pub(crate) fn url(&self, address: &str, path: &str) -> String {
        format!("{}://{address}{path}", self.scheme())
    }

    /// Returns a channel to another node's native API, which connects with its first call.
    ///
    /// # Errors
    ///
    /// When the address cannot be part of a URL.
    pub(crate) fn channel(&self, address: &str) -> Result<Channel, PeersError> {
        let wrong = |error: tonic::transport::Error| PeersError(format!("{address}: {error}"));
        let endpoint = endpoint(format!("{}://{address}", self.scheme())).map_err(wrong)?;
        let endpoint = match &self.tls {
            Some(tls) => endpoint.tls_config(tls.clone()).map_err(wrong)?,
            None => endpoint,
        };
        Ok(endpoint.connect_lazy())
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

fn endpoint(url: String) -> Result<Endpoint, tonic::transport::Error> {
    let (interval, limit) = KEEP_ALIVE;
    let endpoint = Endpoint::from_shared(url)?.connect_timeout(CONNECT_LIMIT);
    let endpoint = endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(limit);
    // Also without calls: hyper sees the first call of a connection only when the other side sends
    // something, and one that is silent from the start does not.
    Ok(endpoint.keep_alive_while_idle(true))
}

fn http_client(authority: Option<&str>) -> Result<reqwest::Client, PeersError> {
    // Fails only if a provider is already installed, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable = |error: reqwest::Error| PeersError(error.to_string());
    let mut http = reqwest::Client::builder().connect_timeout(CONNECT_LIMIT).no_proxy();
    if let Some(pem) = authority {
        let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
        http = http.tls_certs_only(certificates.map_err(unusable)?);
    }
    http.build().map_err(unusable)
}

/// Returns the TLS settings towards other nodes: this node shows its own certificate if they ask
/// for one.
fn client_tls(tls: &TlsConfig, authority: Option<&str>) -> Result<ClientTlsConfig, PeersError> {
    let client = ClientTlsConfig::new();
    let mut client = match authority {
        Some(pem) => client.ca_certificate(Certificate::from_pem(pem)),
        None => client.with_native_roots(),
    };
    if let (Some(_), Some(certificate), Some(key)) =
        (&tls.client_authority, &tls.certificate, &tls.private_key)
    {
        client = client.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(client)
}

fn read(path: &Path) -> Result<String, PeersError> {
    fs::read_to_string(path).map_err(|error| PeersError(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tokio::net::TcpListener;
    use tonic::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    /// Regression: a call to a machine that had vanished ended only when TCP gave up.
    #[tokio::test]
    async fn a_call_to_a_node_that_is_silent_ends() {
        // The system connects, and no program reads.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let channel = endpoint(url).unwrap().connect_lazy();
        let call = Request::post("/handfast.v1.Coordinator/Begin").body(Body::empty()).unwrap();
        channel.oneshot(call).await.unwrap_err();
    }
}
