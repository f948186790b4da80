//! The buyers: all at once, with a limit of how many are served at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use tokio::time::{Instant, sleep};

use crate::cli::Options;
use crate::stock::Product;
use crate::way::{BuyerAnswer, Keeper};

/// How often a buyer that could not be served tries again, such as when a row was locked for too
/// long or the database gave up.
const ATTEMPTS: u32 = 200;
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The result of a sale, as the buyers saw it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) bought: u32,
    pub(crate) sold_out: u32,
    /// Buyers that were never served, and why the last of them was not.
    pub(crate) failed: u32,
    pub(crate) failure: Option<String>,
    /// How often buyers tried again.
    pub(crate) again: u32,
    /// From the beginning until the last unit was sold.
    pub(crate) selling: Duration,
    /// Until the last buyer had its answer.
    pub(crate) all: Duration,
    /// How long each successful buyer took, in ascending order.
    pub(crate) took: Vec<Duration>,
}

/// The result of one buyer.
struct Visit {
    ended: Result<BuyerAnswer>,
    at: Duration,
    took: Duration,
}

struct Crowd<DB: Product> {
    keeper: Keeper<DB>,
    opened: Instant,
    /// Whether any buyer got the answer that it is sold out.
    is_sold_out: AtomicBool,
    again: AtomicU32,
}

/// Sells to every buyer.
pub(crate) async fn sell_to<DB: Product>(options: &Options, keeper: Keeper<DB>) -> Result<Outcome> {
    let crowd = Arc::new(Crowd {
        keeper,
        opened: Instant::now(),
        is_sold_out: AtomicBool::new(false),
        again: AtomicU32::new(0),
    });
    let visits = futures::stream::iter(0..options.buyers).map(|buyer| {
        let crowd = Arc::clone(&crowd);
        tokio::spawn(async move { crowd.visit(buyer).await })
    });
    let mut visits = visits.buffer_unordered(usize::from(options.concurrency));
    let mut outcome = Outcome::default();
    while let Some(visit) = visits.next().await {
        outcome.add(visit?);
    }
    outcome.again = crowd.again.load(Ordering::Relaxed);
    outcome.took.sort_unstable();
    Ok(outcome)
}

impl<DB: Product> Crowd<DB> {
    async fn visit(&self, buyer: u32) -> Visit {
        let came = Instant::now();
        let ended = self.buy(buyer).await;
        Visit { ended, at: self.opened.elapsed(), took: came.elapsed() }
    }

    async fn buy(&self, buyer: u32) -> Result<BuyerAnswer> {
        let mut attempt = 1;
        loop {
            let is_confirmed = self.is_sold_out.load(Ordering::SeqCst);
            match self.keeper.serve(i64::from(buyer), is_confirmed).await {
                Ok(told) => {
                    if told == BuyerAnswer::SoldOut {
                        self.is_sold_out.store(true, Ordering::SeqCst);
                    }
                    return Ok(told);
                }
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => sleep(pause(buyer, attempt)).await,
            }
            self.again.fetch_add(1, Ordering::Relaxed);
            attempt += 1;
        }
    }
}

impl Outcome {
    fn add(&mut self, visit: Visit) {
        self.all = self.all.max(visit.at);
        match visit.ended {
            Ok(BuyerAnswer::Bought) => {
                self.bought += 1;
                self.selling = self.selling.max(visit.at);
                self.took.push(visit.took);
            }
            Ok(BuyerAnswer::SoldOut) => self.sold_out += 1,
            Err(error) => {
                self.failed += 1;
                self.failure = Some(format!("{error:#}"));
            }
        }
    }

    /// Returns the time within which this percentage of the successful buyers was served.
    pub(crate) fn percentile(&self, hundredths: usize) -> Duration {
        let last = self.took.len().saturating_sub(1);
        self.took.get(last * hundredths / 100).copied().unwrap_or_default()
    }
}

/// Returns a pause that grows with each attempt and differs between buyers, so that buyers that
/// collided do not collide again.
fn pause(buyer: u32, attempt: u32) -> Duration {
    (Duration::from_millis(2) * (buyer % 7 + 1) * attempt).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_are_bounded() {
        assert!(pause(1, 1) < pause(1, 2));
        assert_ne!(pause(1, 1), pause(2, 1));
        assert_eq!(pause(6, 200), PAUSE_MAX);
    }

    #[test]
    fn percentiles_are_of_those_who_bought() {
        let took = (1..=100).map(Duration::from_millis).collect();
        let outcome = Outcome { took, ..Outcome::default() };
        assert_eq!(outcome.percentile(50), Duration::from_millis(50));
        assert_eq!(outcome.percentile(99), Duration::from_millis(99));
        assert_eq!(Outcome::default().percentile(99), Duration::ZERO);
    }
}
