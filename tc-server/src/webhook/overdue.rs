//! Notices when phase two of a resource does not go down: some of its calls are owed for longer
//! than a limit.
//!
//! One alert is raised for a resource, and the next one only after nothing of it was overdue. The
//! time counts from when this process owed the call: a change of leader begins it again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use handfast_core::Timestamp;
use tokio::time::sleep;

use super::Alerts;
use super::event::AlertEvent;
use crate::dispatch::{Dispatcher, OverdueCalls, ResourceKey};

/// How often is looked, at most and at least.
const PERIOD_MIN: Duration = Duration::from_millis(50);
const PERIOD_MAX: Duration = Duration::from_secs(5);
/// The calls that are looked at in one turn, in which nothing is dispatched.
const SCANNED_MAX: usize = 1_024;
/// The most resources that are remembered because operators were alerted (BOUNDED).
const ALERTED_MAX: usize = 1_000;

/// Looks at the dispatcher's calls from time to time, until it is dropped.
pub(crate) async fn watch(dispatcher: Dispatcher, alerts: Alerts, limit_ms: u64) {
    let period = Duration::from_millis(limit_ms / 10).clamp(PERIOD_MIN, PERIOD_MAX);
    let mut alerted = BTreeSet::new();
    loop {
        sleep(period).await;
        let now = dispatcher.clock().now();
        let overdue = overdue(&dispatcher, Timestamp(now.0.saturating_sub(limit_ms))).await;
        for event in new_alerts(&overdue, &mut alerted) {
            alerts.enqueue(event);
        }
    }
}

async fn overdue(
    dispatcher: &Dispatcher,
    before: Timestamp,
) -> BTreeMap<ResourceKey, OverdueCalls> {
    let (mut found, mut from) = (BTreeMap::new(), None);
    loop {
        from = dispatcher.find_overdue(before, from, SCANNED_MAX, &mut found);
        if from.is_none() {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the alerts about resources that were not overdue before.
fn new_alerts(
    overdue: &BTreeMap<ResourceKey, OverdueCalls>,
    alerted: &mut BTreeSet<ResourceKey>,
) -> Vec<AlertEvent> {
    alerted.retain(|resource| overdue.contains_key(resource));
    let fresh = overdue.iter().filter(|(resource, _)| !alerted.contains(resource));
    let fresh: Vec<_> = fresh.take(ALERTED_MAX.saturating_sub(alerted.len())).collect();
    alerted.extend(fresh.iter().map(|(resource, _)| (*resource).clone()));
    fresh.into_iter().map(|(resource, calls)| AlertEvent::of_overdue(resource, calls)).collect()
}

#[cfg(test)]
mod tests {
    use handfast_core::{BranchId, Mode, Xid};

    use super::*;

    fn calls(ids: &[&str]) -> BTreeMap<ResourceKey, OverdueCalls> {
        let calls = OverdueCalls {
            count: 1,
            since: Timestamp(1),
            xid: Xid(7),
            branch: BranchId(1),
            address: "tc:7091".into(),
        };
        let key = |id: &&str| ResourceKey { id: (*id).into(), mode: Mode::Tcc };
        ids.iter().map(|id| (key(id), calls.clone())).collect()
    }

    #[test]
    fn a_resource_is_told_once_until_it_has_recovered() {
        let mut alerted = BTreeSet::new();
        let mut count = |ids: &[&str]| new_alerts(&calls(ids), &mut alerted).len();
        assert_eq!(count(&["a"]), 1);
        assert_eq!(count(&["a"]), 0);
        assert_eq!(count(&["a", "b"]), 1);
        assert_eq!(count(&["b"]), 0);
        assert_eq!(count(&["a", "b"]), 1, "it had recovered");
    }
}
