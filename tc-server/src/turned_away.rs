//! Counts the connections and requests that the ports turn away, and logs them at a limited rate.
//!
//! A client can send garbage as fast as the network carries it. A log line for each would fill the
//! disk that the store needs. So the first of each kind is logged at once, and those that follow
//! within an interval are logged as a number (BOUNDED). The state is global, because the log is the
//! process's too.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use metrics::Counter;

/// The metric's name.
pub(crate) const METRIC: &str = "handfast_turned_away_total";

/// The shortest time between two log lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// The port at which a client is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortName {
    /// The native API.
    Grpc,
    /// REST, health and metrics.
    Admin,
    /// The port for clients of Seata.
    Seata,
    /// Phase-two answers, on any port.
    Answers,
}

/// The reason for turning a client away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The limit of connections is reached.
    NoRoom,
    /// The process has no file descriptor left.
    NoDescriptor,
    /// The TLS handshake failed.
    Handshake,
    /// The client sent nothing for too long.
    Silent,
    /// The client's bytes cannot be understood.
    Malformed,
    /// The client has no token, or its token does not permit the request.
    Token,
    /// The client does not read.
    SlowReader,
    /// There are more requests at a time than are allowed or can be answered.
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

static THROTTLES: [[Mutex<LogThrottle>; REASONS.len()]; PORTS.len()] =
    [const { [const { Mutex::new(LogThrottle::new()) }; REASONS.len()] }; PORTS.len()];

/// Counts a client turned away, and logs it as a warning, unless one of its kind was logged within
/// the interval. Then it is logged only at the debug level.
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

/// Counts a client turned away that needs no log line.
pub(crate) fn count(port: PortName, why: Why) {
    counter(port, why).increment(1);
}

/// Registers every counter at zero: a rise of a counter that is missing at first is not visible.
pub(crate) fn register() {
    for port in PORTS {
        REASONS.into_iter().for_each(|why| counter(port, why).increment(0));
    }
}

/// Logs the unlogged number of each kind whose interval is over, until it is dropped.
pub(crate) async fn log_periodically() {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        PORTS.into_iter().for_each(log_rest);
    }
}

fn log_rest(port: PortName) {
    for why in REASONS {
        let Some(unlogged) = lock(port, why).rest(Instant::now()) else { continue };
        tracing::warn!(port = port.word(), reason = why.word(), unlogged, "turned away");
    }
}

fn counter(port: PortName, why: Why) -> Counter {
    metrics::counter!(METRIC, "port" => port.word(), "reason" => why.word())
}

fn lock(port: PortName, why: Why) -> MutexGuard<'static, LogThrottle> {
    THROTTLES[port as usize][why as usize].lock().expect("no holder of a throttle's lock panics")
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

/// When one kind was last logged, and how many were not logged since.
#[derive(Debug)]
struct LogThrottle {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl LogThrottle {
    const fn new() -> Self {
        Self { logged_at: None, unlogged: 0 }
    }

    /// Returns how many were not logged before this one, if this one is to be logged.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if !self.is_due(now) {
            self.unlogged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Returns how many were not logged, if there are any and the interval is over.
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
    fn the_first_is_logged_and_followers_are_counted() {
        let (mut throttle, start) = (LogThrottle::new(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(throttle.admit(start), Some(0));
        assert!((0..100_000).all(|_| throttle.admit(after(9_999)).is_none()));
        assert_eq!(throttle.rest(after(9_999)), None);
        assert_eq!(throttle.admit(after(10_000)), Some(100_000));
        assert_eq!(throttle.admit(after(10_001)), None);
        assert_eq!(throttle.rest(after(20_000)), Some(1));
        assert_eq!(throttle.rest(after(40_000)), None, "nothing is left to log");
        assert_eq!(throttle.admit(after(40_000)), Some(0));
    }

    #[test]
    fn each_kind_has_a_throttle_of_its_own() {
        assert!(PORTS.iter().enumerate().all(|(place, port)| *port as usize == place));
        assert!(REASONS.iter().enumerate().all(|(place, why)| *why as usize == place));
    }
}
