//! The customers' side: places an order until it has an end.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::input::Order;
use crate::services::BusinessRefusal;
use crate::services::order::OrderEnd;

/// The time during which an order that is rolled back again and again is resent.
const GIVE_UP_AFTER: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// An order that has ended.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) verdict: OrderOutcome,
    /// From the first attempt to the end.
    pub(crate) took: Duration,
    /// The number of times it was resent.
    pub(crate) resubmissions: u32,
}

/// The end of an order for its customer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OrderOutcome {
    Committed,
    Refused(BusinessRefusal),
    /// Neither bought nor refused, in spite of all attempts.
    Failed(String),
}

/// Sends an order, and repeats it as long as it is rolled back without a refusal, such as when the
/// coordinator was lost on the way or a deadlock ended it.
pub(crate) async fn place(http: &reqwest::Client, service: &str, order: &Order) -> Placed {
    let started = Instant::now();
    let mut resubmissions = 0;
    let verdict = loop {
        match submit(http, service, order).await {
            Ok(OrderEnd::Committed) => break OrderOutcome::Committed,
            Ok(OrderEnd::Refused { refusal }) => break OrderOutcome::Refused(refusal),
            Ok(OrderEnd::RolledBack { reason }) if started.elapsed() < GIVE_UP_AFTER => {
                tracing::info!(order = order.order_id, reason, "rolled back: sent again");
            }
            Ok(OrderEnd::RolledBack { reason } | OrderEnd::Unclear { reason }) => {
                break OrderOutcome::Failed(reason);
            }
            Err(error) => break OrderOutcome::Failed(format!("{error:#}")),
        }
        sleep(pause(order.order_id, resubmissions)).await;
        resubmissions += 1;
    };
    Placed { verdict, took: started.elapsed(), resubmissions }
}

async fn submit(http: &reqwest::Client, service: &str, order: &Order) -> Result<OrderEnd> {
    let sent = http.post(format!("{service}/orders")).json(order).send().await?;
    Ok(sent.error_for_status()?.json().await?)
}

/// Returns a pause that grows with each attempt and differs between orders, so that orders that
/// collided do not collide again.
fn pause(order_id: i64, resubmissions: u32) -> Duration {
    let spread = u32::try_from(order_id.rem_euclid(5)).unwrap_or_default() + 1;
    (PAUSE * spread * (resubmissions + 1)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_are_bounded() {
        assert!(pause(1, 0) < pause(1, 1));
        assert_ne!(pause(1, 0), pause(2, 0));
        assert_eq!(pause(4, 10_000), PAUSE_MAX);
    }
}
