//! The command line's client of the admin API.

use std::io::Write;
use std::time::Duration;

use reqwest::{Certificate, Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::failure::causes;
use super::{CliFailure, Exit, Remote};
use crate::admin::model::Problem;

/// The time limit of a request. Longer than the server's own limit, so that the server answers
/// first.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit of a whole download. Each part of it has [`TIMEOUT`].
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A client of one coordinator's admin API.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Client {
    /// Creates a client, and reads the certificate file if one is named. Connects with the first
    /// request.
    ///
    /// # Errors
    ///
    /// The certificate cannot be used.
    pub fn new(remote: &Remote) -> Result<Self, CliFailure> {
        // Fails only if a provider is already installed, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder().timeout(TIMEOUT).no_proxy();
        if let Some(path) = &remote.ca {
            let unusable = |error: String| {
                let message = format!("certificate {}: {error}", path.display());
                CliFailure::new(Exit::Usage, "HF-CLI-CA", message)
            };
            let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
            http = http.tls_certs_only(certificates);
        }
        let http = http
            .build()
            .map_err(|error| CliFailure::new(Exit::Failed, "HF-CLI-CA", causes(&error)))?;
        let base = format!("{}/api/v1", remote.server.trim_end_matches('/'));
        Ok(Self { http, base, token: remote.token.clone() })
    }

    /// Sends a GET request.
    ///
    /// # Errors
    ///
    /// The coordinator does not answer, or answers with an error.
    pub async fn get<Answer: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<Answer, CliFailure> {
        self.ask(self.request(Method::GET, path).query(query)).await
    }

    /// Sends a POST request.
    ///
    /// # Errors
    ///
    /// The coordinator does not answer, or answers with an error.
    pub async fn post<Answer: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, CliFailure> {
        self.ask(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a POST request, and writes the bytes of the answer as they come.
    ///
    /// # Errors
    ///
    /// As [`Self::post`]; or the answer is broken off, or cannot be written.
    pub async fn download(
        &self,
        path: &str,
        body: &impl Serialize,
        output: &mut impl Write,
    ) -> Result<(), CliFailure> {
        let request = self.request(Method::POST, path).json(body).timeout(DOWNLOAD_TIMEOUT);
        let sent = timeout(TIMEOUT, request.send()).await.map_err(|_| self.silent())?;
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if !status.is_success() {
            let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
            return Err(refusal(status, serde_json::from_slice(&body).ok()));
        }
        loop {
            let chunk = timeout(TIMEOUT, response.chunk()).await.map_err(|_| self.silent())?;
            let Some(chunk) = chunk.map_err(|error| self.unreachable(&error))? else {
                return Ok(());
            };
            let unwritten = |error: std::io::Error| {
                CliFailure::new(Exit::Failed, "HF-CLI-FILE", error.to_string())
            };
            output.write_all(&chunk).map_err(unwritten)?;
        }
    }

    fn silent(&self) -> CliFailure {
        let message = format!("{}: no answer within {TIMEOUT:?}", self.base);
        CliFailure::new(Exit::Unreachable, "HF-CLI-UNREACHABLE", message)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn ask<Answer: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Answer, CliFailure> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        if !status.is_success() {
            return Err(refusal(status, serde_json::from_slice(&body).ok()));
        }
        serde_json::from_slice(&body).map_err(|error| {
            let message = format!("{}: the answer cannot be read: {error}", self.base);
            CliFailure::new(Exit::Failed, "HF-CLI-ANSWER", message)
                .advise("client and server may be of different versions")
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliFailure {
        if error.is_builder() {
            let message = format!("{}: {}", self.base, causes(error));
            return CliFailure::new(Exit::Usage, "HF-CLI-SERVER", message)
                .advise("give the server as http://host:port or https://host:port");
        }
        let message = format!("{}: {}", self.base, causes(error));
        let advice = advice_for(&message);
        CliFailure::new(Exit::Unreachable, "HF-CLI-UNREACHABLE", message).advise(advice)
    }
}

/// Returns the advice for a failure to connect. Its causes are known by their texts alone.
fn advice_for(message: &str) -> &'static str {
    let known = [
        ("UnknownIssuer", "give the certificate of the authority that signed its own: --ca FILE"),
        ("InvalidContentType", "this port has no TLS: give --server http://…"),
        ("invalid HTTP version", "this port has TLS: give --server https://…"),
        ("CertificateRequired", "this is the port for services: give the admin address"),
    ];
    let found = known.iter().find(|(said, _)| message.contains(said));
    found.map_or("is the coordinator running, and is --server its admin address?", |(_, it)| it)
}

fn refusal(status: StatusCode, problem: Option<Problem>) -> CliFailure {
    let exit = match status {
        StatusCode::BAD_REQUEST => Exit::Usage,
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Unauthorised,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Exit::Unreachable,
        status if status.is_client_error() => Exit::Refused,
        _ => Exit::Failed,
    };
    match problem {
        Some(Problem { code, message }) => CliFailure::new(exit, code, message),
        None => {
            let message = format!("the server answered {status}");
            CliFailure::new(exit, "HF-CLI-ANSWER", message)
                .advise("is --server the coordinator's admin address?")
        }
    }
}
