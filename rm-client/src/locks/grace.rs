//! Tells requests that are answered at once from those that wait, without a timer for each: most
//! are answered long before it would go off.
//!
//! Time is cut into halves of a grace. A request is reported as waiting at the end of the half
//! after the one that it was sent in.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::AbortHandle;

/// A grant without waiting comes after a round trip. A request without an answer after this long,
/// or after more than half of it, is reported as waiting, with the holder.
pub(super) const GRACE: Duration = Duration::from_millis(40);

/// The time that an answer may take before its request counts as waiting.
#[derive(Debug, Default)]
pub(super) struct Grace {
    halves: Arc<Mutex<Halves>>,
}

#[derive(Debug, Default)]
struct Halves {
    /// The requests of this half.
    now: Arc<Notify>,
    /// The requests of the half before.
    before: Arc<Notify>,
    /// Whether there was a request in this half.
    is_asked: bool,
    /// The task that ends the halves, as long as requests wait for it.
    clock: Option<AbortHandle>,
}

impl Grace {
    /// Returns the answer, if it comes in time.
    pub(super) async fn wait_for<F: Future + Unpin>(&self, answer: &mut F) -> Option<F::Output> {
        match select(answer, pin!(self.over())).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(((), _)) => None,
        }
    }

    /// Returns a future that ends when the grace of a request that is sent now is over.
    fn over(&self) -> OwnedNotified {
        let mut halves = lock(&self.halves);
        halves.is_asked = true;
        // The runtime of the clock task may have gone, and the task with it.
        if halves.clock.as_ref().is_none_or(AbortHandle::is_finished) {
            let clock = tokio::spawn(keep_time(Arc::clone(&self.halves)));
            halves.clock = Some(clock.abort_handle());
        }
        Arc::clone(&halves.now).notified_owned()
    }
}

/// Ends halves until no request waits for one.
async fn keep_time(halves: Arc<Mutex<Halves>>) {
    loop {
        tokio::time::sleep(GRACE / 2).await;
        let mut halves = lock(&halves);
        let Halves { now, before, is_asked, clock } = &mut *halves;
        mem::swap(now, before);
        // What is `now` from here on holds the requests of the half before, whose grace is over.
        now.notify_waiters();
        if !mem::take(is_asked) {
            *clock = None;
            return;
        }
    }
}

fn lock(halves: &Mutex<Halves>) -> MutexGuard<'_, Halves> {
    // No change under the mutex panics half-way.
    halves.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answer_in_time_is_returned() {
        let grace = Grace::default();
        assert_eq!(grace.wait_for(&mut ready(7)).await, Some(7));
        let mut late = Box::pin(async {
            sleep(GRACE / 2 - Duration::from_millis(1)).await;
            8
        });
        assert_eq!(grace.wait_for(&mut late).await, Some(8));
    }

    /// At every offset within a half that another request has begun.
    #[tokio::test(start_paused = true)]
    async fn waiting_is_reported_within_the_grace() {
        let grace = Grace::default();
        for pause_ms in 0..90 {
            assert_eq!(grace.wait_for(&mut ready(())).await, Some(()));
            sleep(Duration::from_millis(pause_ms)).await;
            let asked = Instant::now();
            assert_eq!(grace.wait_for(&mut pending::<()>()).await, None);
            let waited = asked.elapsed();
            assert!(GRACE / 2 <= waited && waited <= GRACE, "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_stops_without_requests() {
        let grace = Grace::default();
        assert_eq!(grace.wait_for(&mut ready(())).await, Some(()));
        sleep(GRACE * 2).await;
        assert!(lock(&grace.halves).clock.is_none());
        assert_eq!(grace.wait_for(&mut pending::<()>()).await, None);
    }

    /// A client of locks may outlive the runtime that it was first used on.
    #[test]
    fn clock_restarts_on_another_runtime() {
        let grace = Grace::default();
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let answer = runtime.unwrap().block_on(grace.wait_for(&mut pending::<()>()));
            assert_eq!(answer, None);
        }
    }
}
