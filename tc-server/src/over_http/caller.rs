//! The HTTP client: one attempt at one operation.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::answered::{Answered, read};
use super::operation::Request;
use super::signature::Signed;
use super::{Participant, Settings};
use crate::clock::millis;

/// Calls participants. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    served: Vec<Served>,
    response_bytes_max: usize,
    calls_max: usize,
}

#[derive(Debug)]
struct Served {
    participant: Participant,
    http: reqwest::Client,
    /// Room for tries. What else is called, the dispatcher counts.
    tries: Semaphore,
}

/// The HTTP client cannot be set up, such as for want of certificates to trust.
#[derive(Debug, thiserror::Error)]
#[error("HTTP client: {0}")]
pub struct CallerError(#[from] reqwest::Error);

/// Why a try cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// The URL is under no prefix.
    NotAllowed,
    /// So many are under way.
    Full(usize),
}

impl Caller {
    /// Nobody is called.
    #[must_use]
    pub fn nobody() -> Self {
        let Settings { response_bytes_max, calls_max, .. } = Settings::default();
        Self { shared: Arc::new(Shared { served: Vec::new(), response_bytes_max, calls_max }) }
    }

    /// Sets up the client; connects with the first call.
    ///
    /// # Errors
    ///
    /// The client cannot be set up.
    pub fn new(settings: Settings) -> Result<Self, CallerError> {
        let Settings { participants, timeout, response_bytes_max, calls_max } = settings;
        if participants.is_empty() {
            return Ok(Self::nobody());
        }
        // Fails only if a provider is installed, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .redirect(Policy::none())
            .no_proxy()
            .build()?;
        let served = participants.into_iter().map(|participant| {
            let tries = Semaphore::new(calls_max.min(Semaphore::MAX_PERMITS));
            Served { participant, http: http.clone(), tries }
        });
        let served = served.collect();
        Ok(Self { shared: Arc::new(Shared { served, response_bytes_max, calls_max }) })
    }

    pub(super) fn participants(&self) -> impl Iterator<Item = &Participant> {
        self.shared.served.iter().map(|served| &served.participant)
    }

    /// How many calls a participant has at a time.
    pub(super) fn calls_max(&self) -> usize {
        self.shared.calls_max
    }

    /// Room for a try of this resource. The caller holds it for as long as it asks.
    pub(crate) fn room(&self, resource: &str) -> Result<SemaphorePermit<'_>, NotNow> {
        let (_, served) = self.served(resource).ok_or(NotNow::NotAllowed)?;
        served.tries.try_acquire().map_err(|_| NotNow::Full(self.shared.calls_max))
    }

    /// Asks once.
    pub(crate) async fn call(&self, request: &Request) -> Answered {
        let Some((_, served)) = self.served(&request.resource) else {
            return Answered::Failed(format!("{} is under no prefix", request.resource));
        };
        match self.post(served, request).await {
            Ok((status, body)) => read(request, status, &body),
            Err(error) => Answered::Failed(error),
        }
    }

    /// Whether the participant of this place is called for the resource.
    pub(super) fn serves(&self, place: usize, resource: &str) -> bool {
        self.served(resource).is_some_and(|(own, _)| own == place)
    }

    /// Who is called under the longest prefix that covers the resource, and its place.
    fn served(&self, resource: &str) -> Option<(usize, &Served)> {
        let all = self.shared.served.iter().enumerate();
        let covering = all.filter(|(_, served)| served.participant.prefix.covers(resource));
        covering.max_by_key(|(_, served)| served.participant.prefix.as_str().len())
    }

    async fn post(
        &self,
        served: &Served,
        request: &Request,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let url = request.url();
        let failed = |error: reqwest::Error| format!("{url}: {}", with_causes(error));
        let post = served.http.post(&url).header(CONTENT_TYPE, "application/json");
        let mut post = post.body(request.body.clone()).build().map_err(failed)?;
        for (name, text) in headers(&post, request, served) {
            let value = text.try_into().map_err(|error| format!("{url}: {name}: {error}"))?;
            post.headers_mut().insert(name, value);
        }
        let response = served.http.execute(post).await.map_err(failed)?;
        let status = response.status();
        Ok((status, self.body(response).await.map_err(|error| format!("{url}: {error}"))?))
    }

    /// The body, if it is no longer than it may be.
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

/// Which branch and operation the call is about, and the proof of who calls.
fn headers(
    post: &reqwest::Request,
    request: &Request,
    served: &Served,
) -> [(&'static str, String); 5] {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp_ms = millis(since_epoch);
    let signed = Signed {
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
        ("handfast-signature", signed.by(&served.participant.secret)),
    ]
}

/// An error of the client says little without what is below it.
fn with_causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
