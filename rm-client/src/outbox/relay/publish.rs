//! Publishes what was claimed: keys beside each other, the events of one key one after the other.

use std::collections::BTreeMap;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::super::broker::{Broker, PublishError};
use super::claim::Claimed;

/// What became of a claimed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The broker has it for certain.
    Published,
    /// The broker does not take this event.
    Refused(String),
    /// The broker did not serve. It may have the event all the same.
    Unavailable(String),
    /// An earlier event of its key was not published.
    Behind,
}

impl Fate {
    pub(super) fn unavailable(&self) -> Option<&str> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::Published | Self::Refused(_) | Self::Behind => None,
        }
    }
}

/// Publishes, until the deadline at most; answers the fate of each, in the order given.
pub(super) async fn publish(
    broker: &dyn Broker,
    claimed: &[Claimed],
    deadline: Instant,
) -> Vec<Fate> {
    let keys: Vec<i64> = claimed.iter().map(|claimed| claimed.key_hash).collect();
    each_key_in_order(&keys, |at| publish_one(broker, &claimed[at], deadline)).await
}

/// Publishes those of a key one after the other, up to the first that is not published.
pub async fn each_key_in_order<F: Future<Output = Fate>>(
    keys: &[i64],
    publish_one: impl Fn(usize) -> F,
) -> Vec<Fate> {
    let publish_one = &publish_one;
    let mut of_keys: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        of_keys.entry(*key).or_default().push(at);
    }
    let of_keys = of_keys.into_values().map(|places| async move {
        let mut fates = Vec::with_capacity(places.len());
        for at in places {
            let goes_on = fates.last().is_none_or(|(_, fate)| *fate == Fate::Published);
            let fate = if goes_on { publish_one(at).await } else { Fate::Behind };
            fates.push((at, fate));
        }
        fates
    });
    let mut fates = vec![Fate::Behind; keys.len()];
    for (at, fate) in join_all(of_keys).await.into_iter().flatten() {
        fates[at] = fate;
    }
    fates
}

async fn publish_one(broker: &dyn Broker, claimed: &Claimed, deadline: Instant) -> Fate {
    let event = match &claimed.event {
        Ok(event) => event,
        Err(reason) => return Fate::Refused(reason.clone()),
    };
    match timeout_at(deadline, broker.publish(event)).await {
        Ok(Ok(())) => Fate::Published,
        Ok(Err(PublishError::Refused { reason })) => Fate::Refused(reason),
        Ok(Err(PublishError::Unavailable { reason })) => Fate::Unavailable(reason),
        Err(_elapsed) => Fate::Unavailable("no confirmation within the lease".to_owned()),
    }
}
