//! Publishes claimed events: different keys concurrently, the events of one key one after the
//! other.

use std::collections::BTreeMap;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::super::broker::{Broker, PublishError};
use super::claim::Claimed;

/// The result of publishing a claimed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishResult {
    /// The broker has confirmed the event.
    Published,
    /// The broker refused this event.
    Refused(String),
    /// The broker did not serve. It may have the event nevertheless.
    Unavailable(String),
    /// An earlier event of its key was not published.
    Behind,
}

impl PublishResult {
    pub(super) fn unavailable(&self) -> Option<&str> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::Published | Self::Refused(_) | Self::Behind => None,
        }
    }
}

/// Publishes events, until the deadline at most, and returns their results in the given order.
pub(super) async fn publish(
    broker: &dyn Broker,
    claimed: &[Claimed],
    deadline: Instant,
) -> Vec<PublishResult> {
    let keys: Vec<i64> = claimed.iter().map(|claimed| claimed.key_hash).collect();
    each_key_in_order(&keys, |at| publish_one(broker, &claimed[at], deadline)).await
}

/// Publishes the events of each key one after the other, up to the first that is not published.
pub async fn each_key_in_order<F: Future<Output = PublishResult>>(
    keys: &[i64],
    publish_one: impl Fn(usize) -> F,
) -> Vec<PublishResult> {
    let publish_one = &publish_one;
    let mut of_keys: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        of_keys.entry(*key).or_default().push(at);
    }
    let of_keys = of_keys.into_values().map(|places| async move {
        let mut results = Vec::with_capacity(places.len());
        for at in places {
            let goes_on =
                results.last().is_none_or(|(_, result)| *result == PublishResult::Published);
            let result = if goes_on { publish_one(at).await } else { PublishResult::Behind };
            results.push((at, result));
        }
        results
    });
    let mut results = vec![PublishResult::Behind; keys.len()];
    for (at, result) in join_all(of_keys).await.into_iter().flatten() {
        results[at] = result;
    }
    results
}

async fn publish_one(broker: &dyn Broker, claimed: &Claimed, deadline: Instant) -> PublishResult {
    let event = match &claimed.event {
        Ok(event) => event,
        Err(reason) => return PublishResult::Refused(reason.clone()),
    };
    match timeout_at(deadline, broker.publish(event)).await {
        Ok(Ok(())) => PublishResult::Published,
        Ok(Err(PublishError::Refused { reason })) => PublishResult::Refused(reason),
        Ok(Err(PublishError::Unavailable { reason })) => PublishResult::Unavailable(reason),
        Err(_elapsed) => PublishResult::Unavailable("no confirmation within the lease".to_owned()),
    }
}
