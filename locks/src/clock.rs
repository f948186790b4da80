//! Time for leases: a clock that goes on while the machine is suspended.
//!
//! `std::time::Instant` stops with the machine on Linux: after a minute of suspension a lease that
//! ended long ago would still look fresh. This one counts such time. It has no relation to the time
//! of day and is never compared with another machine's.

use std::ops::Add;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

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

/// Rings at a time at the latest. It may ring early: what it is set to is never put off, since each
/// setting may wake the runtime's driver, and times that move away are mostly never reached.
#[derive(Default)]
pub(crate) struct Alarm {
    set: Option<(Moment, BoxFuture<'static, ()>)>,
}

impl Alarm {
    /// It rings by then, if there is a time.
    pub(crate) fn set(&mut self, then: Option<Moment>) {
        let Some(then) = then else { return };
        if self.set.as_ref().is_none_or(|(at, _)| then < *at) {
            self.set = Some((then, sleep_until(then).boxed()));
        }
    }

    /// Waits until it rings, once; for ever if it is not set.
    pub(crate) async fn rings(&mut self) {
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
    async fn an_alarm_rings_at_the_earliest_time_that_it_was_set_to() {
        let (now, mut alarm) = (Moment::now(), Alarm::default());
        for then in [Some(now + FAR), Some(now), Some(now + FAR), None] {
            alarm.set(then);
        }
        alarm.rings().await;
        assert!(alarm.rings().now_or_never().is_none(), "it rings once");
        alarm.set(Some(now + FAR));
        assert!(alarm.rings().now_or_never().is_none());
        alarm.set(Some(now));
        alarm.rings().await;
    }
}
