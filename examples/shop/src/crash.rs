//! Kills the coordinator while orders run, evenly spread over the run.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;

use crate::coordinator::ChildCoordinators;

/// Children after their crashes.
#[derive(Debug)]
pub(crate) struct CrashedCoordinators {
    /// The children, running.
    pub(crate) children: ChildCoordinators,
    /// The longest time in which none led.
    pub(crate) away_max: Duration,
}

/// Crashes the child that leads `times` times, each when a further part of the `total` orders has
/// ended. `ended` counts the orders that have.
pub(crate) async fn crash_along(
    mut children: ChildCoordinators,
    times: u32,
    total: usize,
    mut ended: watch::Receiver<usize>,
) -> Result<CrashedCoordinators> {
    let mut away_max = Duration::ZERO;
    for threshold in thresholds(times, total) {
        ended.wait_for(|ended| *ended >= threshold).await?;
        away_max = away_max.max(children.crash_and_restart().await?);
    }
    Ok(CrashedCoordinators { children, away_max })
}

/// After how many orders each crash comes: none at the very start, none at the very end.
fn thresholds(times: u32, total: usize) -> impl Iterator<Item = usize> {
    let parts = usize::try_from(times).unwrap_or(usize::MAX).saturating_add(1);
    (1..parts).map(move |part| total * part / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_spread_evenly() {
        assert_eq!(thresholds(3, 100).collect::<Vec<_>>(), [25, 50, 75]);
        assert_eq!(thresholds(0, 100).count(), 0);
        assert_eq!(thresholds(2, 1).collect::<Vec<_>>(), [0, 0]);
    }
}
