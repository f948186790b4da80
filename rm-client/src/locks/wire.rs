//! Conversions between the types of `handfast-locks` and the wire messages.

use std::time::Duration;

use handfast_proto::v1;
use handfast_proto::v1::acquire_lock_reply::Result::{Busy, Granted};

use handfast_locks::{
    AcquireRequest, AcquireResponse, AcquisitionId, BackendError, FencingToken, Holder, LockMode,
    Moment, WAITER_HEARTBEAT,
};

use crate::error::Error;

/// Makes the request, without the fields that the backend sets.
pub(super) fn request_of(request: &AcquireRequest) -> v1::AcquireLockRequest {
    let of = match request.mode {
        LockMode::Exclusive => 0,
        LockMode::Shared { permits } => permits,
    };
    v1::AcquireLockRequest {
        name: request.name.as_str().to_owned(),
        token: Some(id_to_wire(request.id)),
        share: Some(v1::LockShare { of }),
        label: request.label.to_string(),
        lease_ms: millis(request.lease),
        ..v1::AcquireLockRequest::default()
    }
}

/// Converts a reply. `is_own` says whether the reply answers the very request that was sent at
/// `sent_at`.
pub(super) fn response_of(
    reply: v1::AcquireLockReply,
    sent_at: Moment,
    is_own: bool,
) -> Result<AcquireResponse, BackendError> {
    match reply.result {
        Some(Granted(v1::LockGranted { fence, waited_ms })) => {
            let fence = i64::try_from(fence).map_err(|_| {
                BackendError::lasting(format!("fence {fence} is larger than databases can keep"))
            })?;
            let since = (waited_ms > 0 || !is_own).then(|| since(sent_at, waited_ms));
            Ok(AcquireResponse::Granted { fencing_token: FencingToken::new(fence), since })
        }
        Some(Busy(v1::LockBusy { holder })) => {
            let holder = holder.and_then(holder_of);
            Ok(AcquireResponse::Busy { holder, retry_after: WAITER_HEARTBEAT })
        }
        None => Err(BackendError::lasting("the answer to a request for a lock is empty")),
    }
}

/// Returns a time at which the lock was certainly not granted yet: it was granted as long after the
/// request came as the coordinator says, whose clock may run one per cent faster than this one.
fn since(sent_at: Moment, waited_ms: u64) -> Moment {
    let waited = Duration::from_millis(waited_ms.saturating_sub(1));
    sent_at + waited.saturating_sub(waited / 100)
}

pub(super) fn holder_of(holder: v1::LockHolder) -> Option<Holder> {
    let v1::LockToken { client, number } = holder.token?;
    let client = u128::from_be_bytes(client.try_into().ok()?);
    Some(Holder { id: AcquisitionId { client, number }, label: holder.label })
}

pub(super) fn id_to_wire(id: AcquisitionId) -> v1::LockToken {
    v1::LockToken { client: id.client.to_be_bytes().to_vec(), number: id.number }
}

/// Converts to whole milliseconds, and at least one unless the duration is zero.
pub(super) fn millis(duration: Duration) -> u64 {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if duration.is_zero() { 0 } else { millis.max(1) }
}

/// Converts an error. The client of locks repeats a request whose failure may pass.
pub(super) fn backend_error(error: Error) -> BackendError {
    let is_lasting = match &error {
        Error::Rejected(rejection) => !matches!(
            rejection.code(),
            "HF-TC-BUSY"
                | "HF-TC-STOPPING"
                | "HF-TC-NOT-LEADING"
                | "HF-TC-LIMIT-REACHED"
                | "HF-TC-SHARE-REACHED"
        ),
        Error::Unreachable { .. } | Error::Unanswered { .. } | Error::QueueFull { .. } => false,
        Error::Unauthenticated { .. }
        | Error::TooLarge { .. }
        | Error::Closed
        | Error::UnexpectedAnswer { .. }
        | Error::TransactionRequired
        | Error::TransactionForbidden { .. }
        | Error::BegunElsewhere { .. }
        | Error::BegunBefore { .. }
        | Error::NotExplicit { .. }
        | Error::MalformedXid { .. }
        | Error::SagaJson { .. }
        | Error::Environment { .. }
        | Error::Configuration { .. } => true,
    };
    if is_lasting {
        return BackendError::lasting(error.to_string());
    }
    BackendError::passing("the coordinator did not answer", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_counts_from_the_grant_or_earlier() {
        let sent_at = Moment::at(Duration::from_secs(100));
        assert_eq!(since(sent_at, 0), sent_at);
        assert_eq!(since(sent_at, 1), sent_at);
        assert_eq!(since(sent_at, 1_001), sent_at + Duration::from_millis(990));
        let granted = v1::LockGranted { fence: 7, waited_ms: 0 };
        let reply = v1::AcquireLockReply { result: Some(Granted(granted)) };
        let fencing_token = FencingToken::new(7);
        let own = response_of(reply.clone(), sent_at, true);
        assert!(matches!(own, Ok(AcquireResponse::Granted { since: None, .. })));
        // A reply that a later request fetches counts from when its own request was sent.
        let fetched = response_of(reply, sent_at, false);
        assert_eq!(
            fetched.ok(),
            Some(AcquireResponse::Granted { fencing_token, since: Some(sent_at) })
        );
    }

    #[test]
    fn token_too_large_for_databases_is_an_error() {
        let granted = v1::LockGranted { fence: u64::MAX, waited_ms: 0 };
        let reply = v1::AcquireLockReply { result: Some(Granted(granted)) };
        assert!(response_of(reply, Moment::now(), true).is_err());
    }
}
