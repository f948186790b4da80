//! Wakes the engine when nothing arrives.

use std::future::pending;

use futures::future::BoxFuture;
use handfast_core::Timestamp;

use crate::clock::Clock;

/// The timer of the engine. Every batch moves the next deadline to a later time, and setting a
/// timer costs as much as a decision, so an earlier timer is kept, and may fire too early.
#[derive(Default)]
pub(super) struct Alarm {
    set: Option<(Timestamp, BoxFuture<'static, ()>)>,
}

impl Alarm {
    /// Waits until `due` at the latest; forever without one. A future that is dropped leaves the
    /// alarm set.
    pub(super) async fn reach(&mut self, due: Option<Timestamp>, clock: &dyn Clock) {
        let Some(due) = due else { return pending().await };
        if due <= clock.now() {
            return;
        }
        let set = match self.set.take() {
            Some(earlier) if earlier.0 <= due => earlier,
            _ => (due, clock.reach(due)),
        };
        let (_, reached) = self.set.insert(set);
        reached.await;
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;

    #[derive(Debug)]
    struct PausedClock {
        started: Instant,
    }

    impl PausedClock {
        fn start() -> Self {
            Self { started: Instant::now() }
        }
    }

    impl Clock for PausedClock {
        fn now(&self) -> Timestamp {
            Timestamp(u64::try_from(self.started.elapsed().as_millis()).unwrap())
        }
    }

    async fn woken_at(alarm: &mut Alarm, due_ms: u64, clock: &PausedClock) -> u64 {
        alarm.reach(Some(Timestamp(due_ms)), clock).await;
        clock.now().0
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_off_at_the_time_that_is_due() {
        let (mut alarm, clock) = (Alarm::default(), PausedClock::start());
        assert_eq!(woken_at(&mut alarm, 50, &clock).await, 50);
        assert_eq!(woken_at(&mut alarm, 40, &clock).await, 50);
        assert_eq!(woken_at(&mut alarm, 90, &clock).await, 90);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_takes_the_place_of_a_later_one() {
        let (mut alarm, clock) = (Alarm::default(), PausedClock::start());
        assert!(alarm.reach(Some(Timestamp(60_000)), &clock).now_or_never().is_none());
        assert_eq!(woken_at(&mut alarm, 5, &clock).await, 5);
    }

    /// Once too early, and then in time.
    #[tokio::test(start_paused = true)]
    async fn for_a_later_time_it_is_left_as_it_is() {
        let (mut alarm, clock) = (Alarm::default(), PausedClock::start());
        assert!(alarm.reach(Some(Timestamp(5)), &clock).now_or_never().is_none());
        assert_eq!(woken_at(&mut alarm, 8, &clock).await, 5);
        assert_eq!(woken_at(&mut alarm, 8, &clock).await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_the_alarm_never_goes_off() {
        let (mut alarm, clock) = (Alarm::default(), PausedClock::start());
        assert!(alarm.reach(Some(Timestamp(5)), &clock).now_or_never().is_none());
        let waited = tokio::time::timeout(Duration::from_secs(9), alarm.reach(None, &clock));
        assert!(waited.await.is_err());
    }
}
