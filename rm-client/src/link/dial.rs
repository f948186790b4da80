//! Where the coordinator is and how to reach it: endpoints, TLS, token.

use std::fmt;
use std::time::Duration;

use http::Uri;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use super::event::Failure;
use crate::error::Error;

/// A half-open connection is noticed after these two together.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// What rustls says of bytes that are no TLS.
const NOT_TLS: &str = "InvalidContentType";

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
        tls_ca_pem: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let endpoint = |url: &String| endpoint(url, tls_ca_pem, timeout);
        let endpoints = urls.iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, credentials: Credentials::new(token)? })
    }

    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Connects to the endpoint of this index.
    pub(crate) async fn dial(&self, endpoint: usize) -> Result<Channel, Failure> {
        let endpoint = &self.endpoints[endpoint];
        endpoint.connect().await.map_err(|error| {
            let mut reason = format!("{}: {}", endpoint.uri(), with_sources(&error));
            if reason.contains(NOT_TLS) {
                reason += " (a coordinator without TLS needs an http:// endpoint)";
            }
            Failure::Passing(reason.into())
        })
    }

    /// What it means that no stream could be opened on a transport to the endpoint of this index.
    pub(crate) fn no_stream(&self, endpoint: usize, status: &Status) -> Failure {
        let uri = self.endpoints[endpoint].uri();
        let failure = failure(status);
        match failure {
            // Not the coordinator's word, but the transport's: plain text shakes no hands, so this
            // is the first that it hears of TLS.
            Failure::Passing(reason) if is_of_transport(status) && is_plain(uri) => {
                let hint = "a coordinator with TLS needs an https:// endpoint";
                Failure::Passing(format!("{uri}: {reason} ({hint})").into())
            }
            Failure::Passing(_) | Failure::Unauthenticated(_) => failure,
        }
    }
}

/// A coordinator's refusal has no cause on this side.
fn is_of_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn is_plain(uri: &Uri) -> bool {
    uri.scheme_str() == Some("http")
}

/// What it means that a call or its stream ended so.
pub(super) fn failure(status: &Status) -> Failure {
    let reason = with_sources(status).into();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Failure::Unauthenticated(reason),
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
        | Code::DataLoss => Failure::Passing(reason),
    }
}

fn endpoint(url: &str, ca_pem: Option<&str>, timeout: Duration) -> Result<Endpoint, Error> {
    let wrong = |reason: String| Error::Configuration { setting: "endpoint", reason };
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| wrong(format!("{url:?}: {}", with_sources(&error))))?
        .connect_timeout(timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    match (endpoint.uri().scheme_str(), ca_pem) {
        (Some("http"), None) => Ok(endpoint),
        // tonic passes over what is no certificate; then none is trusted, and nothing says why.
        (Some("https"), Some(pem)) if !pem.contains(PEM_CERTIFICATE) => {
            let reason = "no PEM certificate: it takes the text of the file, not its name";
            Err(Error::Configuration { setting: "tls_ca", reason: reason.to_owned() })
        }
        (Some("https"), Some(pem)) => {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            let wrong =
                |error| Error::Configuration { setting: "tls_ca", reason: with_sources(&error) };
            endpoint.tls_config(tls).map_err(wrong)
        }
        (Some("https"), None) => {
            Err(wrong(format!("{url}: https needs the coordinator's CA certificate, see tls_ca")))
        }
        (Some("http"), Some(_)) => {
            Err(wrong(format!("{url}: a CA certificate is given, so it must begin with https://")))
        }
        _ => Err(wrong(format!("{url:?}: must begin with http:// or https://"))),
    }
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
