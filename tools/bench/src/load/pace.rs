//! Decides when the next transaction begins.
//!
//! In a closed loop it begins when an earlier one has ended, so the load adapts to the server. In
//! an open loop it begins at a time of its own, whatever the server does. Latency counts from that
//! time, so that a pause of the server shows in every transaction that it delayed (no coordinated
//! omission).

use std::fmt;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::SmallRng;

/// Closed or open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// A fixed number of transactions at a time.
    Closed { in_flight: usize },
    /// A fixed rate of transactions a second, at random times, however many are open.
    Open { per_second: f64 },
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { in_flight } => write!(f, "{in_flight} in flight"),
            Self::Open { per_second } => write!(f, "{per_second} a second"),
        }
    }
}

impl Pace {
    /// Returns the pace of one of several connections.
    pub(crate) fn share_of(self, connections: usize) -> Self {
        match self {
            Self::Closed { in_flight } => {
                Self::Closed { in_flight: in_flight.div_ceil(connections) }
            }
            Self::Open { per_second } => Self::Open { per_second: per_second / connections as f64 },
        }
    }
}

/// The transactions that are to begin.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pace: Pace,
    next: Instant,
    until: Instant,
}

impl Arrivals {
    /// Returns the transactions between two points in time.
    pub(crate) fn new(pace: Pace, from: Instant, until: Instant) -> Self {
        Self { pace, next: from, until }
    }

    /// Returns when the next transaction was due, if it is due by now and there is room for it.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        open: usize,
        random: &mut SmallRng,
    ) -> Option<Instant> {
        match self.pace {
            Pace::Closed { in_flight } => (open < in_flight && now < self.until).then_some(now),
            Pace::Open { per_second } => {
                let at = self.next;
                if at > now || at >= self.until {
                    return None;
                }
                self.next = at + pause(per_second, random);
                Some(at)
            }
        }
    }

    /// Returns when the next transaction is due, for an open loop that goes on.
    pub(crate) fn next(&self) -> Option<Instant> {
        match self.pace {
            Pace::Closed { .. } => None,
            Pace::Open { .. } => (self.next < self.until).then_some(self.next),
        }
    }

    /// Returns whether no more transactions will be due.
    pub(crate) fn over(&self, now: Instant) -> bool {
        match self.pace {
            Pace::Closed { .. } => now >= self.until,
            Pace::Open { .. } => self.next >= self.until,
        }
    }
}

/// Draws the time between two independent arrivals: it is exponentially distributed.
fn pause(per_second: f64, random: &mut SmallRng) -> Duration {
    let uniform: f64 = random.random();
    Duration::from_secs_f64(-(1.0 - uniform).ln() / per_second)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_closed_loop_has_so_many_open() {
        let from = Instant::now();
        let mut random = SmallRng::seed_from_u64(1);
        let mut arrivals = Arrivals::new(Pace::Closed { in_flight: 2 }, from, from + SECOND);
        assert_eq!(arrivals.due(from, 1, &mut random), Some(from));
        assert_eq!(arrivals.due(from, 2, &mut random), None);
        assert_eq!(arrivals.due(from + SECOND, 0, &mut random), None);
        assert!(arrivals.over(from + SECOND));
    }

    #[test]
    fn an_open_loop_keeps_its_rate_and_starts_what_it_is_late_for() {
        let from = Instant::now();
        let mut random = SmallRng::seed_from_u64(1);
        let pace = Pace::Open { per_second: 1_000.0 };
        let mut arrivals = Arrivals::new(pace, from, from + 10 * SECOND);
        let late = from + 10 * SECOND;
        let mut starts = Vec::new();
        while let Some(at) = arrivals.due(late, usize::MAX, &mut random) {
            starts.push(at);
        }
        assert!((9_500..10_500).contains(&starts.len()), "{}", starts.len());
        assert!(starts.is_sorted());
        assert!(arrivals.over(late) && arrivals.next().is_none());
    }

    #[test]
    fn connections_share_the_load() {
        assert_eq!(Pace::Closed { in_flight: 5 }.share_of(2), Pace::Closed { in_flight: 3 });
        assert_eq!(Pace::Open { per_second: 5.0 }.share_of(2), Pace::Open { per_second: 2.5 });
    }
}
