//! The order of publishing: keys beside each other, the events of one key one after the other.

use std::collections::BTreeMap;

use futures::future::join_all;

/// The end of the attempt to publish one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishResult {
    /// The broker has the event for certain.
    Published,
    /// The broker does not take this event.
    Refused(String),
    /// The broker did not serve. It may have the event all the same.
    Unavailable(String),
    /// An earlier event of its key was not published.
    Behind,
}

impl PublishResult {
    /// Returns the reason if the broker did not serve.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::Published | Self::Refused(_) | Self::Behind => None,
        }
    }
}

/// Publishes the events of each key one after the other, up to the first that is not published.
/// Returns the result of each event, in the order given.
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
