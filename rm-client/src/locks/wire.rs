//! Between what the crate of locks says and what goes over the wire.

use std::time::Duration;

use handfast_proto::v1;
use handfast_proto::v1::acquire_lock_reply::Result::{Busy, Granted};

use handfast_locks::{Answer, Ask, BackendError, Fence, Holder, Moment, Share, Token, WAITER_BEAT};

use crate::error::Error;

/// The request but for what is a matter of the backend.
pub(super) fn request_of(ask: &Ask) -> v1::AcquireLockRequest {
    let of = match ask.share {
        Share::All => 0,
        Share::One { of } => of,
    };
    v1::AcquireLockRequest {
        name: ask.name.as_str().to_owned(),
        token: Some(token_to_wire(ask.token)),
        share: Some(v1::LockShare { of }),
        label: ask.label.to_string(),
        lease_ms: millis(ask.lease),
        ..v1::AcquireLockRequest::default()
    }
}

/// `is_own` is whether the answer goes to the very request that was sent, and then.
pub(super) fn answer_of(
    reply: v1::AcquireLockReply,
    sent_at: Moment,
    is_own: bool,
) -> Result<Answer, BackendError> {
    match reply.result {
        Some(Granted(v1::LockGranted { fence, waited_ms })) => {
            let fence = i64::try_from(fence).map_err(|_| {
                BackendError::lasting(format!("fence {fence} is larger than databases can keep"))
            })?;
            let since = (waited_ms > 0 || !is_own).then(|| since(sent_at, waited_ms));
            Ok(Answer::Granted { fence: Fence::new(fence), since })
        }
        Some(Busy(v1::LockBusy { holder })) => {
            let holder = holder.and_then(holder_of);
            Ok(Answer::Busy { holder, look_again: WAITER_BEAT })
        }
        None => Err(BackendError::lasting("the answer to a request for a lock is empty")),
    }
}

/// When the lock was certainly not granted yet: it was granted so long after the request came as
/// the coordinator says, whose clock may run one per cent faster than this one.
fn since(sent_at: Moment, waited_ms: u64) -> Moment {
    let waited = Duration::from_millis(waited_ms.saturating_sub(1));
    sent_at + waited.saturating_sub(waited / 100)
}

pub(super) fn holder_of(holder: v1::LockHolder) -> Option<Holder> {
    let v1::LockToken { client, number } = holder.token?;
    let client = u128::from_be_bytes(client.try_into().ok()?);
    Some(Holder { token: Token { client, number }, label: holder.label })
}

pub(super) fn token_to_wire(token: Token) -> v1::LockToken {
    v1::LockToken { client: token.client.to_be_bytes().to_vec(), number: token.number }
}

/// Whole milliseconds, at least one of what is not nothing.
pub(super) fn millis(duration: Duration) -> u64 {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if duration.is_zero() { 0 } else { millis.max(1) }
}

/// What may pass is asked again by whoever wants the lock.
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
        | Error::LauncherElsewhere { .. }
        | Error::NotExplicit { .. }
        | Error::MalformedXid { .. }
        | Error::SagaJson { .. }
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
    fn a_lease_counts_from_its_grant_and_never_from_later() {
        let sent_at = Moment::at(Duration::from_secs(100));
        assert_eq!(since(sent_at, 0), sent_at);
        assert_eq!(since(sent_at, 1), sent_at);
        assert_eq!(since(sent_at, 1_001), sent_at + Duration::from_millis(990));
        let granted = v1::LockGranted { fence: 7, waited_ms: 0 };
        let reply = v1::AcquireLockReply { result: Some(Granted(granted)) };
        let fence = Fence::new(7);
        let own = answer_of(reply.clone(), sent_at, true);
        assert!(matches!(own, Ok(Answer::Granted { since: None, .. })));
        // Fetched by a later request, it counts from when its own was sent.
        let fetched = answer_of(reply, sent_at, false);
        assert_eq!(fetched.ok(), Some(Answer::Granted { fence, since: Some(sent_at) }));
    }

    #[test]
    fn a_fence_that_databases_cannot_keep_is_an_error() {
        let granted = v1::LockGranted { fence: u64::MAX, waited_ms: 0 };
        let reply = v1::AcquireLockReply { result: Some(Granted(granted)) };
        assert!(answer_of(reply, Moment::now(), true).is_err());
    }
}
