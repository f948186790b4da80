//! Judges who led when, from what the coordinators said of themselves. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A coordinator said that it leads. Times are of one clock that all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadSighting {
    /// When the answer was read, in nanoseconds.
    pub at: u64,
    /// The number of the coordinator.
    pub node: usize,
    /// The epoch that it named.
    pub epoch: u64,
}

/// A time in which no coordinator said that it leads, between two that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadGap {
    /// When the next leader was first seen, in nanoseconds.
    pub until: u64,
    /// How long it lasted.
    pub lasted: Duration,
}

/// The leads of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leads {
    /// The number of epochs in which a coordinator led.
    pub epochs: usize,
    /// The time before each epoch but the first.
    pub gaps: Vec<LeadGap>,
    /// Epochs in which more than one coordinator led.
    pub violations: Vec<String>,
}

impl Leads {
    /// Judges sightings, and the XIDs that were answered to a begin: the epoch and the coordinator
    /// in each.
    #[must_use]
    pub fn judge(sightings: &[LeadSighting], begun: &[(u64, usize)]) -> Self {
        let mut leaders: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        let seen = sightings.iter().map(|seen| (seen.epoch, seen.node));
        for (epoch, node) in seen.chain(begun.iter().copied()) {
            leaders.entry(epoch).or_default().insert(node);
        }
        let several = leaders.iter().filter(|(_, nodes)| nodes.len() > 1);
        let violations =
            several.map(|(epoch, nodes)| format!("nodes {nodes:?} led in epoch {epoch}")).collect();
        Self { epochs: leaders.len(), gaps: gaps(sightings), violations }
    }
}

/// Returns the median and the greatest of durations, if there are any.
#[must_use]
pub fn median_and_max(durations: &[Duration]) -> Option<(Duration, Duration)> {
    let mut durations = durations.to_vec();
    durations.sort_unstable();
    Some((*durations.get(durations.len() / 2)?, *durations.last()?))
}

/// Returns the time before each epoch but the first. A leader that slept may say after it that it
/// leads: only what was seen before counts.
fn gaps(sightings: &[LeadSighting]) -> Vec<LeadGap> {
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    for seen in sightings {
        let at = first.entry(seen.epoch).or_insert(seen.at);
        *at = seen.at.min(*at);
    }
    let gap_before = |first: u64| {
        let before = sightings.iter().map(|seen| seen.at).filter(|at| *at < first).max()?;
        Some(LeadGap { until: first, lasted: Duration::from_nanos(first - before) })
    };
    first.values().filter_map(|first| gap_before(*first)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at_ms: u64, node: usize, epoch: u64) -> LeadSighting {
        LeadSighting { at: at_ms * 1_000_000, node, epoch }
    }

    fn gap(until_ms: u64, lasted_ms: u64) -> LeadGap {
        LeadGap { until: until_ms * 1_000_000, lasted: Duration::from_millis(lasted_ms) }
    }

    #[test]
    fn a_gap_is_the_time_before_the_next_leader() {
        let sightings = [seen(0, 0, 7), seen(20, 0, 7), seen(2_020, 1, 8), seen(2_060, 2, 9)];
        let leads = Leads::judge(&sightings, &[]);
        assert_eq!((leads.epochs, leads.violations.len()), (3, 0));
        assert_eq!(leads.gaps, [gap(2_020, 2_000), gap(2_060, 40)]);
    }

    #[test]
    fn a_leader_that_wakes_up_late_shortens_no_gap() {
        let sightings = [seen(0, 0, 7), seen(2_000, 1, 8), seen(5_000, 0, 7), seen(5_020, 1, 8)];
        assert_eq!(Leads::judge(&sightings, &[]).gaps, [gap(2_000, 2_000)]);
    }

    #[test]
    fn two_leaders_of_one_epoch_are_seen() {
        let violations = |begun| Leads::judge(&[seen(0, 0, 7)], begun).violations;
        assert!(violations(&[(7, 0), (8, 1)]).is_empty());
        assert_eq!(violations(&[(7, 1)]), ["nodes {0, 1} led in epoch 7"]);
    }

    #[test]
    fn a_run_with_one_leader_has_no_gap() {
        assert_eq!(Leads::judge(&[seen(0, 0, 7), seen(20, 0, 7)], &[]).gaps, []);
        assert_eq!(median_and_max(&[]), None);
        let [short, long] = [1, 2].map(Duration::from_secs);
        assert_eq!(median_and_max(&[short, long, short]), Some((short, long)));
    }
}
