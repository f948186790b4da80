//! Kills the coordinator while orders run, evenly spread over the run.

use anyhow::Result;
use tokio::sync::watch;

use crate::coordinator::ChildCoordinator;

/// Crashes the child `times` times, each when a further part of the `total` orders has ended, and
/// gives it back running. `ended` counts the orders that have.
pub(crate) async fn crash_along(
    mut child: ChildCoordinator,
    times: u32,
    total: usize,
    mut ended: watch::Receiver<usize>,
) -> Result<ChildCoordinator> {
    for threshold in thresholds(times, total) {
        ended.wait_for(|ended| *ended >= threshold).await?;
        child.crash_and_restart().await?;
    }
    Ok(child)
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
