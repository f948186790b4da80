//! Time for leases: a clock that goes on while the machine is suspended.
//!
//! `std::time::Instant` stops with the machine on Linux: after a minute of suspension a lease that
//! ended long ago would still look fresh. This one counts such time. It has no relation to the time
//! of day and is never compared with another machine's.

use std::ops::Add;
use std::time::Duration;

/// A point in time on this machine, since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present.
    #[must_use]
    pub fn now() -> Self {
        let clock = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(clock.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(clock.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanoseconds))
    }

    /// A point in time by its distance from the start of the clock: for tests and simulations.
    #[must_use]
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The distance from the start of the clock.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How long until then, nothing if it has passed.
    #[must_use]
    pub fn left(self, now: Self) -> Duration {
        self.0.saturating_sub(now.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
// The monotonic clocks of the other systems count suspended time or are the best there is.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// The longest sleep while a deadline is near or far. The runtime's timer stops with the machine;
/// sleeping in slices, a deadline that passed meanwhile is seen this soon after the resumption.
const SLICE: Duration = Duration::from_millis(500);

/// Waits until then, by this clock.
pub(crate) async fn sleep_until(then: Moment) {
    loop {
        let left = then.left(Moment::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}
