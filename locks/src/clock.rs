//! A clock for leases that goes on while the machine is suspended.
//!
//! `std::time::Instant` stops with the machine on Linux: after a minute of suspension, a lease that
//! ended long ago would still look fresh. This clock counts such time. It has no relation to the
//! time of day and is never compared with the clock of another machine.

use std::ops::Add;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

/// A point in time on this machine, counted from the machine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Returns the present.
    #[must_use]
    pub fn now() -> Self {
        let clock = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(clock.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(clock.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanoseconds))
    }

    /// Makes a point in time from its distance to the clock's start, for tests and simulations.
    #[must_use]
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Returns the distance to the clock's start.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time from `now` until this moment, or zero if it has passed.
    #[must_use]
    pub fn remaining(self, now: Self) -> Duration {
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

/// The longest sleep at a time. The runtime's timer stops with the machine. Because a wait is cut
/// into slices, a deadline that passed during a suspension is noticed this soon after the machine
/// resumes.
const SLICE: Duration = Duration::from_millis(500);

/// Waits until `then`, by this clock.
pub(crate) async fn sleep_until(then: Moment) {
    loop {
        let left = then.remaining(Moment::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

/// A timer that ends a wait at the latest at the time to which it is set. It may end early: it is
/// never set to a later time, since each change may wake the runtime's driver, and a deadline that
/// moves away is mostly never reached.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    set: Option<(Moment, BoxFuture<'static, ()>)>,
}

impl DeadlineTimer {
    /// Sets the timer to end at `then` or earlier. Does nothing without a time.
    pub(crate) fn set(&mut self, then: Option<Moment>) {
        let Some(then) = then else { return };
        if self.set.as_ref().is_none_or(|(at, _)| then < *at) {
            self.set = Some((then, sleep_until(then).boxed()));
        }
    }

    /// Waits until the timer ends, which unsets it. Never returns if the timer is not set.
    pub(crate) async fn wait(&mut self) {
        match &mut self.set {
            Some((_, sleep)) => sleep.await,
            None => std::future::pending().await,
        }
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn alarm_goes_off_at_the_earliest_time_set() {
        let (now, mut alarm) = (Moment::now(), DeadlineTimer::default());
        for then in [Some(now + FAR), Some(now), Some(now + FAR), None] {
            alarm.set(then);
        }
        alarm.wait().await;
        assert!(alarm.wait().now_or_never().is_none(), "it goes off once");
        alarm.set(Some(now + FAR));
        assert!(alarm.wait().now_or_never().is_none());
        alarm.set(Some(now));
        alarm.wait().await;
    }
}
