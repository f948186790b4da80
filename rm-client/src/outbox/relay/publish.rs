//! Publishes claimed events: different keys concurrently, the events of one key one after the
//! other.

use handfast_rm_core::relay::{PublishResult, each_key_in_order};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::super::broker::{Broker, PublishError};
use super::claim::Claimed;
use crate::trace;

/// Publishes, until the deadline at most; returns the result of each, in the order given.
pub(super) async fn publish(
    broker: &dyn Broker,
    claimed: &[Claimed],
    deadline: Instant,
) -> Vec<PublishResult> {
    let keys: Vec<i64> = claimed.iter().map(|claimed| claimed.key_hash).collect();
    each_key_in_order(&keys, |at| publish_one(broker, &claimed[at], deadline)).await
}

async fn publish_one(broker: &dyn Broker, claimed: &Claimed, deadline: Instant) -> PublishResult {
    let event = match &claimed.event {
        Ok(event) => event,
        Err(reason) => return PublishResult::Refused(reason.clone()),
    };
    let span = trace::publish(event);
    let confirmed = timeout_at(deadline, broker.publish(event)).instrument(span.clone()).await;
    let (outcome, result) = match confirmed {
        Ok(Ok(())) => ("published", PublishResult::Published),
        Ok(Err(PublishError::Refused { reason })) => ("refused", PublishResult::Refused(reason)),
        Ok(Err(PublishError::Unavailable { reason })) => {
            ("unavailable", PublishResult::Unavailable(reason))
        }
        Err(_elapsed) => {
            let reason = "no confirmation within the lease".to_owned();
            ("unavailable", PublishResult::Unavailable(reason))
        }
    };
    span.record("outcome", outcome);
    result
}
