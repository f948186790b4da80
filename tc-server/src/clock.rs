//! Where the shell takes time from.
//!
//! The core is told the time (PURE); this is who tells it. A simulator brings its own clock.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_core::Timestamp;

/// A source of time that never goes back.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The point in time that it is.
    fn now(&self) -> Timestamp;

    /// Ends when that time has come. A waker that comes early does no harm: who waits looks again.
    fn reach(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait_ms = at.0.saturating_sub(self.now().0);
        tokio::time::sleep(Duration::from_millis(wait_ms)).boxed()
    }
}

/// The machine's wall clock as it stood at the start, carried on by the monotonic clock: setting
/// the machine's clock moves no deadline, and time never goes back.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    started: Instant,
    started_at: Timestamp,
}

impl WallClock {
    /// Takes the wall clock's word for what time it is; a clock before 1970 counts as 1970.
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

/// What the machine's clock says, which may jump either way from one look to the next.
pub(crate) fn of_machine() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since_epoch).saturating_add_signed(stepped_ms()))
}

/// By how much a test has set the clock: what the file says, at each look, that the environment
/// variable `TC_CLOCK_FILE` names.
#[cfg(feature = "crash-points")]
fn stepped_ms() -> i64 {
    let file = std::env::var_os("TC_CLOCK_FILE");
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.map_or(0, |text| text.trim().parse().expect("a step of the clock is a number"))
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
fn stepped_ms() -> i64 {
    0
}

/// Whole milliseconds, at most the largest representable number.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
