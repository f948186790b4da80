//! The clock of the server.
//!
//! The core reads no clock (PURE); the server passes it the time of this one. The simulator has its
//! own implementation.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_core::Timestamp;

/// A source of time that never goes back.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Completes when the time is reached. Completing early does no harm: callers check the time
    /// again.
    fn reach(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait_ms = at.0.saturating_sub(self.now().0);
        tokio::time::sleep(Duration::from_millis(wait_ms)).boxed()
    }
}

/// The machine's wall clock at the start, advanced by the monotonic clock. Setting the machine's
/// clock moves no deadline, and time never goes back.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    started: Instant,
    started_at: Timestamp,
}

impl WallClock {
    /// Reads the wall clock. A time before 1970 counts as 1970.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now(), started_at: of_machine() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.started_at.after_ms(millis(self.started.elapsed()))
    }
}

/// Returns the time of the machine's clock, which may jump forwards or backwards between calls.
pub(crate) fn of_machine() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since_epoch).saturating_add_signed(stepped_ms()))
}

/// Returns by how much a test has moved the clock. Reads the file named by the environment variable
/// `TC_CLOCK_FILE` at each call.
#[cfg(feature = "crash-points")]
fn stepped_ms() -> i64 {
    let file = std::env::var_os("TC_CLOCK_FILE");
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.map_or(0, |text| text.trim().parse().expect("a step of the clock is a number"))
}

/// Returns zero: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
fn stepped_ms() -> i64 {
    0
}

/// Returns whole milliseconds, saturating at the largest number.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
