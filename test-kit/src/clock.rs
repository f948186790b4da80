//! The time of a test: that of its tokio runtime.
//!
//! Coordinator and client follow one clock, so a test that moves it moves every deadline. Between
//! moves it runs as a clock does: a database that really needs a millisecond is given one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use handfast_core::Timestamp;
use handfast_server::clock::Clock;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

/// The coordinator's clock: tokio's, counted from the wall clock at the start.
#[derive(Debug)]
pub(crate) struct TestClock {
    /// Threads outside of the runtime would read the machine's clock, which is not moved.
    runtime: Handle,
    started: Instant,
    started_at: Timestamp,
}

impl TestClock {
    /// Starts a clock in the current runtime.
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = Timestamp(millis(since_epoch));
        Self { runtime: Handle::current(), started: Instant::now(), started_at }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let _entered = self.runtime.enter();
        Timestamp(self.started_at.0.saturating_add(millis(self.started.elapsed())))
    }
}

/// Whether tokio's clock stands still although the machine's does not.
pub(crate) fn is_paused() -> bool {
    let (before, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(2) {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

/// Whether the runtime's clock can be moved.
pub(crate) fn is_movable() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Lets the clock jump. Nothing runs in between: a clock that is paused while the runtime is idle
/// would jump to the next timer by itself.
pub(crate) fn jump(by: Duration) {
    use futures::FutureExt;

    tokio::time::pause();
    // The clock has moved at the first poll; what is left would only yield.
    let _ = tokio::time::advance(by).now_or_never();
    tokio::time::resume();
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_jump_moves_the_clock_and_leaves_it_running() {
        let clock = TestClock::start();
        let before = clock.now();
        jump(Duration::from_secs(3_600));
        let after = clock.now();
        assert!(after.0 >= before.0 + 3_600_000, "{before:?} {after:?}");
        assert!(!is_paused());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(clock.now() > after);
    }

    #[tokio::test]
    async fn another_thread_reads_the_same_time() {
        let clock = TestClock::start();
        jump(Duration::from_secs(3_600));
        let now = clock.now();
        let there = std::thread::spawn(move || clock.now()).join().unwrap();
        assert!(there >= now && there.0 < now.0 + 60_000, "{now:?} {there:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_noticed() {
        assert!(is_paused());
    }
}
