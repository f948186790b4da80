//! An action of a service that does not use this library: the coordinator calls its URLs.
//!
//! ```text
//! TM                          TC                                  service
//!  │ TryBranch(url, input) ─▶ │ branch and input are durable
//!  │                          │ POST {url}/try ──────────────────▶ │
//!  │ ◀─────────────────────── │ ◀───────────────────────────────── │ 2xx, or refused
//!  ...                        │ POST {url}/confirm or /cancel ───▶ │ until it is done
//! ```
//!
//! This process does not call the service itself and signs nothing. Only the coordinator has the
//! secret.

use std::time::Duration;

use handfast_proto::v1;
use handfast_proto::v1::try_branch_reply::Result as Tried;
use serde::Serialize;

use super::error::TccError;
use super::resource::{branch_id, encode, outcome_guard};
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::error::Error;

/// How long a try is repeated unless set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An action that the coordinator calls over HTTP. Cheap to clone. Created by
/// [`Handfast::tcc_over_http`].
#[derive(Clone, Debug)]
pub struct HttpTcc {
    coordinator: Coordinator,
    url: String,
    timeout: Duration,
}

/// The reason why a try over HTTP did not succeed. The branch is cancelled with its global, which
/// can only be rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpTryError {
    /// The service refuses.
    #[error("{url} refuses: {reason}")]
    Refused {
        /// The URL of the action.
        url: String,
        /// The reason that the service gave.
        reason: String,
    },
    /// The service did not give an answer that the coordinator understands. The try may have taken
    /// effect or not.
    #[error("try of {url} not answered: {reason}")]
    Unanswered {
        /// The URL of the action.
        url: String,
        /// The last failure.
        reason: String,
    },
}

impl HttpTryError {
    /// Returns the stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "HF-TCC-REFUSED",
            Self::Unanswered { .. } => "HF-TCC-UNANSWERED",
        }
    }
}

impl Handfast {
    /// Describes an action of a service that does not use this library: the coordinator calls
    /// `{url}/try`, `{url}/confirm` and `{url}/cancel`. The URL must be under a prefix that the
    /// coordinator is configured to call.
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
    /// Sets how long a try is repeated, in all. Default: 10 seconds. Too short: a service that
    /// restarts fails the global. Too long: the global keeps its locks meanwhile.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes the coordinator call the try as a branch of the ambient global, repeatedly until the
    /// service answers. If the global commits, the action is confirmed. If it rolls back, the
    /// action is cancelled.
    ///
    /// If the future is dropped, the global can only be rolled back.
    ///
    /// # Errors
    /// [`TccError::Action`] if the service refuses or does not answer, or another [`TccError`].
    /// Except for [`TccError::Input`] and [`TccError::InputTooLarge`], the try may have been
    /// called.
    pub async fn try_(&self, input: &impl Serialize) -> Result<(), TccError<HttpTryError>> {
        let context = context::current().ok_or(Error::TransactionRequired)?;
        let _open = context.open_branch();
        let input = encode(&self.url, input)?;
        let branch_id = branch_id();
        let request = v1::TryBranchRequest {
            xid: context.xid.to_string(),
            branch_id,
            resource_id: self.url.clone(),
            input,
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            traceparent: String::new(),
        };
        // An error of the coordinator may come after an attempt, so the guard stays armed.
        let mut guard = outcome_guard(&self.coordinator, &context.xid, branch_id);
        let tried = self.coordinator.try_branch(request).await?;
        guard.disarm();
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
