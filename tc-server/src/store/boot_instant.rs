//! A clock for the leader's lease that goes on while the machine is suspended.
//!
//! `std::time::Instant` stops with the machine on Linux: after a minute of suspension, a lease that
//! ended long ago would still look fresh. This clock is never compared with that of a store.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A point in time on this machine, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BootInstant(Duration);

impl BootInstant {
    /// Returns the present.
    pub(super) fn now() -> Self {
        let clock = clock_gettime(CLOCK);
        let seconds = u64::try_from(clock.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(clock.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanoseconds))
    }

    /// Returns the moment this much later.
    pub(super) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// Returns the time until this moment, or zero if it has passed.
    pub(super) fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Returns the moment on the clock of the standard library. The result must not be kept: after
    /// a suspension the two clocks differ.
    pub(super) fn as_instant(self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.remaining()).unwrap_or(now)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
// The monotonic clocks of the other systems count suspended time or are the best there is.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The longest sleep at a time. The runtime's timer stops with the machine, so that a moment that
/// passed during a suspension is noticed this soon after the machine resumes.
const SLICE: Duration = Duration::from_millis(500);

/// Waits until a moment has passed.
pub(super) async fn sleep_until(then: BootInstant) {
    loop {
        let left = then.remaining();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}
