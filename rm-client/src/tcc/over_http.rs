//! An action of a service that has no library: the coordinator calls its URLs.
//!
//! ```text
//! TM                          TC                                  service
//!  │ TryBranch(url, input) ─▶ │ branch and input are durable
//!  │                          │ POST {url}/try ──────────────────▶ │
//!  │ ◀─────────────────────── │ ◀───────────────────────────────── │ 2xx, or refused
//!  ...                        │ POST {url}/confirm or /cancel ───▶ │ until it is done
//! ```
//!
//! What this process does not do: call the service itself, or sign anything. Only the coordinator
//! has the secret.

use std::time::Duration;

use handfast_proto::v1;
use handfast_proto::v1::try_branch_reply::Result as Tried;
use serde::Serialize;

use super::error::TccError;
use super::resource::{branch_id, encode, in_doubt};
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::error::Error;

/// How long a try is asked for if nobody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An action that the coordinator calls over HTTP. Cheap to clone. Made by
/// [`Handfast::tcc_over_http`].
#[derive(Clone, Debug)]
pub struct HttpTcc {
    coordinator: Coordinator,
    url: String,
    timeout: Duration,
}

/// Why a try over HTTP was not done. The branch is cancelled with its global, which can only be
/// rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpTryError {
    /// The service refuses.
    #[error("{url} refuses: {reason}")]
    Refused {
        /// The action.
        url: String,
        /// The service's own words.
        reason: String,
    },
    /// The service has not answered so that it could be understood. Whether the try took effect is
    /// not known.
    #[error("try of {url} not answered: {reason}")]
    Unanswered {
        /// The action.
        url: String,
        /// The last failure.
        reason: String,
    },
}

impl HttpTryError {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "HF-TCC-REFUSED",
            Self::Unanswered { .. } => "HF-TCC-UNANSWERED",
        }
    }
}

impl Handfast {
    /// An action of a service without a library: the coordinator calls `{url}/try`,
    /// `{url}/confirm` and `{url}/cancel`. The URL must be under a prefix that the coordinator is
    /// configured to call.
    ///
    /// ```no_run
    /// # use handfast::Handfast;
    /// # async fn example(handfast: Handfast) -> Result<(), Box<dyn std::error::Error>> {
    /// let debit = handfast.tcc_over_http("http://points:8080/handfast/debit");
    /// handfast.transaction("buy").run(async |_tx| debit.try_(&(7, 30)).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tcc_over_http(&self, url: impl Into<String>) -> HttpTcc {
        HttpTcc { coordinator: self.coordinator().clone(), url: url.into(), timeout: TIMEOUT }
    }
}

impl HttpTcc {
    /// How long a try is asked for, in all. Default: 10 seconds. Too short: a service that restarts
    /// fails the global. Too long: what the global holds is held meanwhile.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Has the try called as a branch of the ambient global, and again until the service has
    /// answered. When the global commits, the action is confirmed, when it rolls back, cancelled.
    ///
    /// Dropping the future makes the global one that can only be rolled back.
    ///
    /// # Errors
    /// [`TccError::Action`] if the service refuses or does not answer, or another [`TccError`];
    /// except for [`TccError::Input`] and [`TccError::InputTooLarge`] the try may have been called.
    pub async fn try_(&self, input: &impl Serialize) -> Result<(), TccError<HttpTryError>> {
        let context = context::current().ok_or(Error::TransactionRequired)?;
        let input = encode(&self.url, input)?;
        let branch_id = branch_id();
        let request = v1::TryBranchRequest {
            xid: context.xid.to_string(),
            branch_id,
            resource_id: self.url.clone(),
            input,
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        // An error of the coordinator may come after an attempt, so the branch stays in doubt.
        let mut in_doubt = in_doubt(&self.coordinator, &context.xid, branch_id);
        let tried = self.coordinator.try_branch(request).await?;
        in_doubt.settled();
        let url = self.url.clone();
        match tried.result {
            Some(Tried::Done(_)) => Ok(()),
            Some(Tried::Refused(v1::Refused { error, .. })) => {
                Err(TccError::Action(HttpTryError::Refused { url, reason: error }))
            }
            Some(Tried::Unanswered(v1::Retryable { error })) => {
                Err(TccError::Action(HttpTryError::Unanswered { url, reason: error }))
            }
            None => {
                let reason = "the coordinator gives no result".to_owned();
                Err(TccError::Action(HttpTryError::Unanswered { url, reason }))
            }
        }
    }
}
