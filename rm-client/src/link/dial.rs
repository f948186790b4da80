//! Where the coordinator is and how to reach it: endpoints and their addresses, TLS, token.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use handfast_rm_core::link::{ConnectionFailure, DialTarget};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tower_service::Service;

use crate::error::Error;

/// A half-open connection is noticed after these two together.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// The end of the line that begins a private key of any kind.
const PEM_KEY: &str = "PRIVATE KEY-----";
const NOT_PEM: &str = "it takes the text of the file, not its name";
const OTHER_AUTHORITY: &str =
    "this coordinator trusts another authority than the one that signed tls_identity";
/// Messages of rustls, and their meaning here. `DecryptError` comes from an authority that has the
/// same name as the trusted one and another key.
const HINTS: [(&str, &str); 4] = [
    ("InvalidContentType", "a coordinator without TLS needs an http:// endpoint"),
    ("CertificateRequired", "this coordinator asks clients for a certificate, see tls_identity"),
    ("UnknownCA", OTHER_AUTHORITY),
    ("DecryptError", OTHER_AUTHORITY),
];

/// The certificates and key for TLS, as text in PEM.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    /// The authority that has signed the coordinator's certificate.
    pub(crate) authority: Option<String>,
    /// This client's own certificate and its key.
    pub(crate) identity: Option<(String, String)>,
}

/// Makes transports.
#[derive(Debug)]
pub(crate) struct Dialler {
    endpoints: Vec<Endpoint>,
    credentials: Credentials,
}

/// Adds the token to every call.
#[derive(Clone)]
pub(crate) struct Credentials(Option<MetadataValue<Ascii>>);

impl Dialler {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Configuration`].
    pub(crate) fn new(
        urls: &[String],
        token: Option<&str>,
        tls: &TlsSettings,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let endpoint = |url: &String| endpoint(url, tls, timeout);
        let endpoints = urls.iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, credentials: Credentials::new(token)? })
    }

    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Connects to this target, and tells beforehand how many addresses its endpoint has.
    pub(crate) async fn dial(
        &self,
        target: DialTarget,
        found: impl FnOnce(usize),
    ) -> Result<Channel, ConnectionFailure> {
        let endpoint = &self.endpoints[target.endpoint];
        let failed = |error: &dyn std::error::Error| {
            let reason = format!("{}: {}", endpoint.uri(), with_sources(error));
            ConnectionFailure::Passing(with_hint(reason).into())
        };
        let addresses = addresses(endpoint.uri()).await.map_err(|error| failed(&error))?;
        // Before the attempt, so that the other addresses have their turn while this one is silent.
        found(addresses.len());
        let address = addresses[target.address % addresses.len()];
        let connected = endpoint.connect_with_connector(Connector { address }).await;
        connected.map_err(|error| failed(&error))
    }

    /// Returns the failure for a stream that could not be opened on a transport to the endpoint of
    /// this index.
    pub(crate) fn no_stream(&self, endpoint: usize, status: &Status) -> ConnectionFailure {
        let uri = self.endpoints[endpoint].uri();
        let failure = failure(status);
        match failure {
            // The transport failed, not the coordinator: a connection in plain text has no
            // handshake, so a server that expects TLS is noticed only here.
            ConnectionFailure::Passing(reason) if is_of_transport(status) && is_plain(uri) => {
                let hint = "a coordinator with TLS needs an https:// endpoint";
                ConnectionFailure::Passing(format!("{uri}: {reason} ({hint})").into())
            }
            // A server checks the client's certificate after the handshake has ended on this side.
            ConnectionFailure::Passing(reason) if is_of_transport(status) => {
                ConnectionFailure::Passing(with_hint(format!("{uri}: {reason}")).into())
            }
            ConnectionFailure::Passing(_) | ConnectionFailure::Unauthenticated(_) => failure,
        }
    }
}

/// Connects to one address, whatever other addresses the name in the URI has.
struct Connector {
    address: SocketAddr,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.address;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// The addresses of an endpoint, at least one.
async fn addresses(uri: &Uri) -> std::io::Result<Vec<SocketAddr>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if is_plain(uri) { 80 } else { 443 });
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(std::io::Error::other(format!("{host} has no address")));
    }
    Ok(addresses)
}

fn with_hint(reason: String) -> String {
    let hint = HINTS.iter().find(|(said, _)| reason.contains(said));
    hint.map_or(reason.clone(), |(_, hint)| format!("{reason} ({hint})"))
}

/// Whether the status has a cause on this side. A refusal of the coordinator has none.
fn is_of_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn is_plain(uri: &Uri) -> bool {
    uri.scheme_str() == Some("http")
}

/// Returns the failure for a call or stream that ended with this status.
pub(super) fn failure(status: &Status) -> ConnectionFailure {
    let reason = with_sources(status).into();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            ConnectionFailure::Unauthenticated(reason)
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => ConnectionFailure::Passing(reason),
    }
}

fn endpoint(url: &str, tls: &TlsSettings, timeout: Duration) -> Result<Endpoint, Error> {
    let wrong = |reason: String| Error::Configuration { setting: "endpoint", reason };
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| wrong(format!("{url:?}: {}", with_sources(&error))))?
        .connect_timeout(timeout)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let is_given = tls.authority.is_some() || tls.identity.is_some();
    match (endpoint.uri().scheme_str(), &tls.authority) {
        (Some("http"), _) if is_given => {
            Err(wrong(format!("{url}: a certificate is given, so it must begin with https://")))
        }
        (Some("http"), _) => Ok(endpoint),
        (Some("https"), Some(authority)) => encrypted(endpoint, authority, tls),
        (Some("https"), None) => {
            Err(wrong(format!("{url}: https needs the coordinator's CA certificate, see tls_ca")))
        }
        _ => Err(wrong(format!("{url:?}: must begin with http:// or https://"))),
    }
}

/// Sets up TLS. The texts are checked before: tonic ignores text that is no certificate, and then
/// trusts none without saying why.
fn encrypted(endpoint: Endpoint, authority: &str, tls: &TlsSettings) -> Result<Endpoint, Error> {
    let wrong = |setting, reason| Error::Configuration { setting, reason };
    if !authority.contains(PEM_CERTIFICATE) {
        return Err(wrong("tls_ca", format!("no PEM certificate: {NOT_PEM}")));
    }
    let settings = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
    let Some((certificate, key)) = &tls.identity else {
        let endpoint = endpoint.tls_config(settings);
        return endpoint.map_err(|error| wrong("tls_ca", with_sources(&error)));
    };
    if !certificate.contains(PEM_CERTIFICATE) {
        return Err(wrong("tls_identity", format!("no PEM certificate: {NOT_PEM}")));
    }
    if !key.contains(PEM_KEY) {
        return Err(wrong("tls_identity", format!("no PEM private key: {NOT_PEM}")));
    }
    // Checks the authority alone first, so that the error names the setting that is wrong.
    let checked = endpoint.clone().tls_config(settings.clone());
    checked.map_err(|error| wrong("tls_ca", with_sources(&error)))?;
    let endpoint = endpoint.tls_config(settings.identity(Identity::from_pem(certificate, key)));
    endpoint.map_err(|error| {
        let reason = format!("certificate and key cannot be used: {}", with_sources(&error));
        wrong("tls_identity", reason)
    })
}

/// An error and what caused it, in one line: tonic's own text stops at `transport error`.
pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |source| source.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

impl Credentials {
    fn new(token: Option<&str>) -> Result<Self, Error> {
        let Some(token) = token else { return Ok(Self(None)) };
        // The token itself is not shown.
        let wrong = |_| Error::Configuration {
            setting: "token",
            reason: "has characters that cannot travel in a header".to_owned(),
        };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(wrong)?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credentials(token)" } else { "Credentials(none)" })
    }
}
