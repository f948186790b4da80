//! What is turned away at the ports: counted, and told to the log now and then.
//!
//! A client can send garbage as fast as the network carries it; a line of the log for each would
//! fill the disk that the store needs. Of each kind the first is logged at once, and those that
//! follow within an interval are logged as a number (BOUNDED). The log is the process's, and so is
//! this count.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use metrics::Counter;

/// The metric's name.
pub(crate) const METRIC: &str = "handfast_turned_away_total";

/// How long a kind stays silent after a line of the log.
const INTERVAL: Duration = Duration::from_secs(10);

/// Where a client is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortName {
    /// The native API.
    Grpc,
    /// REST, health and metrics.
    Admin,
    /// The port for clients of Seata.
    Seata,
    /// Answers of phase two, on whichever port they come.
    Answers,
}

/// Why it is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There are as many connections as there may be.
    NoRoom,
    /// The process has no file descriptor for it.
    NoDescriptor,
    /// Hands could not be shaken over TLS.
    Handshake,
    /// It said nothing for too long.
    Silent,
    /// What it sent means nothing.
    Malformed,
    /// It has no token, or one that does not allow what it asks for.
    Token,
    /// It does not read what is sent to it.
    SlowReader,
    /// More asks at a time than may, or than can be answered.
    Busy,
    /// The coordinator failed to answer.
    Failed,
}

const PORTS: [PortName; 4] = [PortName::Grpc, PortName::Admin, PortName::Seata, PortName::Answers];
const REASONS: [Why; 9] = [
    Why::NoRoom,
    Why::NoDescriptor,
    Why::Handshake,
    Why::Silent,
    Why::Malformed,
    Why::Token,
    Why::SlowReader,
    Why::Busy,
    Why::Failed,
];

static PACES: [[Mutex<Pace>; REASONS.len()]; PORTS.len()] =
    [const { [const { Mutex::new(Pace::new()) }; REASONS.len()] }; PORTS.len()];

/// Counts one, and logs it unless one of its kind has been logged a short while ago; then only
/// where each is asked for.
pub(crate) fn note(port: PortName, why: Why, peer: Option<&dyn Display>, what: &dyn Display) {
    count(port, why);
    let admitted = lock(port, why).admit(Instant::now());
    let (port, reason) = (port.word(), why.word());
    let peer = peer.map(tracing::field::display);
    match admitted {
        Some(unlogged) => tracing::warn!(port, reason, peer, unlogged, %what, "turned away"),
        None => tracing::debug!(port, reason, peer, %what, "turned away"),
    }
}

/// Counts one that is nothing to tell of.
pub(crate) fn count(port: PortName, why: Why) {
    counter(port, why).increment(1);
}

/// Has the metrics show every kind from the start: what is missing cannot rise.
pub(crate) fn register() {
    for port in PORTS {
        REASONS.into_iter().for_each(|why| counter(port, why).increment(0));
    }
}

/// Logs what has not been logged of each kind that is due, for as long as it is not dropped.
pub(crate) async fn keep_telling() {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        PORTS.into_iter().for_each(tell_rest);
    }
}

fn tell_rest(port: PortName) {
    for why in REASONS {
        let Some(unlogged) = lock(port, why).rest(Instant::now()) else { continue };
        tracing::warn!(port = port.word(), reason = why.word(), unlogged, "turned away");
    }
}

fn counter(port: PortName, why: Why) -> Counter {
    metrics::counter!(METRIC, "port" => port.word(), "reason" => why.word())
}

fn lock(port: PortName, why: Why) -> MutexGuard<'static, Pace> {
    PACES[port as usize][why as usize].lock().expect("no holder of a pace's lock panics")
}

impl PortName {
    fn word(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Admin => "admin",
            Self::Seata => "seata",
            Self::Answers => "answers",
        }
    }
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::NoDescriptor => "no_descriptor",
            Self::Handshake => "handshake",
            Self::Silent => "silent",
            Self::Malformed => "malformed",
            Self::Token => "token",
            Self::SlowReader => "slow_reader",
            Self::Busy => "busy",
            Self::Failed => "failed",
        }
    }
}

/// When one kind was logged last, and how many have not been logged since.
#[derive(Debug)]
struct Pace {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl Pace {
    const fn new() -> Self {
        Self { logged_at: None, unlogged: 0 }
    }

    /// How many were not logged before this one, if this one is to be.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if !self.is_due(now) {
            self.unlogged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }

    /// How many have not been logged, if it is time to say so.
    fn rest(&mut self, now: Instant) -> Option<u64> {
        if self.unlogged == 0 || !self.is_due(now) { None } else { self.admit(now) }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_logged_at_once_and_those_that_follow_as_a_number() {
        let (mut pace, start) = (Pace::new(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.admit(start), Some(0));
        assert!((0..100_000).all(|_| pace.admit(after(9_999)).is_none()));
        assert_eq!(pace.rest(after(9_999)), None);
        assert_eq!(pace.admit(after(10_000)), Some(100_000));
        assert_eq!(pace.admit(after(10_001)), None);
        assert_eq!(pace.rest(after(20_000)), Some(1));
        assert_eq!(pace.rest(after(40_000)), None, "nothing is left to be told");
        assert_eq!(pace.admit(after(40_000)), Some(0));
    }

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        assert!(PORTS.iter().enumerate().all(|(place, port)| *port as usize == place));
        assert!(REASONS.iter().enumerate().all(|(place, why)| *why as usize == place));
    }
}
