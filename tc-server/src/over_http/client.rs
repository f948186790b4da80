//! The HTTP client, which makes one attempt at one operation.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::operation::OperationRequest;
use super::outcome::{CallOutcome, read};
use super::signature::SignedRequest;
use super::{Participant, Settings};
use crate::clock::millis;

/// Calls participants. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpCaller {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    response_bytes_max: usize,
    calls_max: usize,
}

#[derive(Debug)]
struct Endpoint {
    participant: Participant,
    http: reqwest::Client,
    /// Limits the tries in progress. The dispatcher limits the other calls.
    tries: Semaphore,
}

/// The HTTP client cannot be set up, for example because there are no trusted certificates.
#[derive(Debug, thiserror::Error)]
#[error("HTTP client: {0}")]
pub struct HttpCallerError(#[from] reqwest::Error);

/// Why a try cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryRefusal {
    /// The URL is under no prefix.
    NotAllowed,
    /// This many tries are in progress, the limit.
    Full(usize),
}

impl HttpCaller {
    /// Returns a client without participants.
    #[must_use]
    pub fn disabled() -> Self {
        let Settings { response_bytes_max, calls_max, .. } = Settings::default();
        Self { shared: Arc::new(Shared { endpoints: Vec::new(), response_bytes_max, calls_max }) }
    }

    /// Sets up the client. It connects with the first call.
    ///
    /// # Errors
    ///
    /// The client cannot be set up.
    pub fn new(settings: Settings) -> Result<Self, HttpCallerError> {
        let Settings { participants, timeout, response_bytes_max, calls_max } = settings;
        if participants.is_empty() {
            return Ok(Self::disabled());
        }
        // Fails only if a provider is already installed, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(timeout)
            // Either would take a signed call to where no operator has allowed it to go.
            .redirect(Policy::none())
            .no_proxy()
            .build()?;
        let endpoints = participants.into_iter().map(|participant| {
            let tries = Semaphore::new(calls_max.min(Semaphore::MAX_PERMITS));
            Endpoint { participant, http: http.clone(), tries }
        });
        let endpoints = endpoints.collect();
        Ok(Self { shared: Arc::new(Shared { endpoints, response_bytes_max, calls_max }) })
    }

    pub(super) fn participants(&self) -> impl Iterator<Item = &Participant> {
        self.shared.endpoints.iter().map(|endpoint| &endpoint.participant)
    }

    /// Returns the limit of calls to a participant at a time.
    pub(super) fn calls_max(&self) -> usize {
        self.shared.calls_max
    }

    /// Returns a permit for a try on this resource, to be held during the try.
    pub(crate) fn room(&self, resource: &str) -> Result<SemaphorePermit<'_>, TryRefusal> {
        let (_, endpoint) = self.endpoint_of(resource).ok_or(TryRefusal::NotAllowed)?;
        endpoint.tries.try_acquire().map_err(|_| TryRefusal::Full(self.shared.calls_max))
    }

    /// Calls the participant once.
    pub(crate) async fn call(&self, request: &OperationRequest) -> CallOutcome {
        let Some((_, endpoint)) = self.endpoint_of(&request.resource) else {
            return CallOutcome::Failed(format!("{} is under no prefix", request.resource));
        };
        match self.post(endpoint, request).await {
            Ok((status, body)) => read(request, status, &body),
            Err(error) => CallOutcome::Failed(error),
        }
    }

    /// Returns whether the participant with this index is called for the resource.
    pub(super) fn serves(&self, place: usize, resource: &str) -> bool {
        self.endpoint_of(resource).is_some_and(|(own, _)| own == place)
    }

    /// Returns the endpoint with the longest prefix that covers the resource, and its index.
    fn endpoint_of(&self, resource: &str) -> Option<(usize, &Endpoint)> {
        let all = self.shared.endpoints.iter().enumerate();
        let covering = all.filter(|(_, endpoint)| endpoint.participant.prefix.covers(resource));
        covering.max_by_key(|(_, endpoint)| endpoint.participant.prefix.as_str().len())
    }

    async fn post(
        &self,
        endpoint: &Endpoint,
        request: &OperationRequest,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let url = request.url();
        let failed = |error: reqwest::Error| format!("{url}: {}", with_causes(error));
        let post = endpoint.http.post(&url).header(CONTENT_TYPE, "application/json");
        let mut post = post.body(request.body.clone()).build().map_err(failed)?;
        let trace = request.traceparent.clone().map(|text| ("traceparent", text));
        for (name, text) in headers(&post, request, endpoint).into_iter().chain(trace) {
            let value = text.try_into().map_err(|error| format!("{url}: {name}: {error}"))?;
            post.headers_mut().insert(name, value);
        }
        let response = endpoint.http.execute(post).await.map_err(failed)?;
        let status = response.status();
        Ok((status, self.body(response).await.map_err(|error| format!("{url}: {error}"))?))
    }

    /// Reads the body up to the limit.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, String> {
        let max = self.shared.response_bytes_max;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(with_causes)? {
            body.extend_from_slice(&chunk);
            if body.len() > max {
                return Err(format!("the answer has more than {max} bytes"));
            }
        }
        Ok(body)
    }
}

/// Returns the headers that name branch and operation, and the signature.
fn headers(
    post: &reqwest::Request,
    request: &OperationRequest,
    endpoint: &Endpoint,
) -> [(&'static str, String); 5] {
    // The machine's clock as it stands, since participants compare the age with theirs. The
    // server's own clock does not follow when the machine's is set.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp_ms = millis(since_epoch);
    let signed = SignedRequest {
        method: post.method().as_str(),
        path: post.url().path(),
        xid: &request.xid,
        branch: request.branch,
        operation: request.operation,
        timestamp_ms,
        body: &request.body,
    };
    [
        ("handfast-xid", request.xid.clone()),
        ("handfast-branch", request.branch.to_string()),
        ("handfast-operation", request.operation.to_owned()),
        ("handfast-timestamp", timestamp_ms.to_string()),
        ("handfast-signature", signed.by(&endpoint.participant.secret)),
    ]
}

/// Formats an error with its causes: the error of the client alone says little.
pub(crate) fn with_causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
