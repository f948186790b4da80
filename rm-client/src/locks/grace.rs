//! Tells requests apart that are answered at once and that wait, without a timer for each: most are
//! answered long before it would go off.
//!
//! Time is cut into halves of a grace. Whoever asks is told at the end of the half after the one he
//! asked in.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::AbortHandle;

/// A grant that does not have to be waited for is there after a round trip. Whoever has heard
/// nothing after this long, or after more than half of it, is told who is in his way.
pub(super) const GRACE: Duration = Duration::from_millis(40);

/// The time that an answer is given before its request counts as one that waits.
#[derive(Debug, Default)]
pub(super) struct Grace {
    halves: Arc<Mutex<Halves>>,
}

#[derive(Debug, Default)]
struct Halves {
    /// Those who have asked in this half.
    now: Arc<Notify>,
    /// Those who asked in the half before.
    before: Arc<Notify>,
    /// Whether anybody has asked in this half.
    is_asked: bool,
    /// Ends the halves, as long as there is somebody to tell.
    clock: Option<AbortHandle>,
}

impl Grace {
    /// The answer, if it is there in time.
    pub(super) async fn give<F: Future + Unpin>(&self, answer: &mut F) -> Option<F::Output> {
        match select(answer, pin!(self.over())).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(((), _)) => None,
        }
    }

    /// Ends when the grace of whoever asks now is over.
    fn over(&self) -> OwnedNotified {
        let mut halves = lock(&self.halves);
        halves.is_asked = true;
        // Its runtime may have gone, and with it the clock.
        if halves.clock.as_ref().is_none_or(AbortHandle::is_finished) {
            let clock = tokio::spawn(keep_time(Arc::clone(&self.halves)));
            halves.clock = Some(clock.abort_handle());
        }
        Arc::clone(&halves.now).notified_owned()
    }
}

/// Ends halves until everybody has been told.
async fn keep_time(halves: Arc<Mutex<Halves>>) {
    loop {
        tokio::time::sleep(GRACE / 2).await;
        let mut halves = lock(&halves);
        let Halves { now, before, is_asked, clock } = &mut *halves;
        mem::swap(now, before);
        now.notify_waiters();
        if !mem::take(is_asked) {
            *clock = None;
            return;
        }
    }
}

fn lock(halves: &Mutex<Halves>) -> MutexGuard<'_, Halves> {
    // No step under it panics half-way.
    halves.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_given() {
        let grace = Grace::default();
        assert_eq!(grace.give(&mut ready(7)).await, Some(7));
        let mut late = Box::pin(async {
            sleep(GRACE / 2 - Duration::from_millis(1)).await;
            8
        });
        assert_eq!(grace.give(&mut late).await, Some(8));
    }

    /// Wherever in a half, which somebody else has begun.
    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_within_the_grace() {
        let grace = Grace::default();
        for pause_ms in 0..90 {
            assert_eq!(grace.give(&mut ready(())).await, Some(()));
            sleep(Duration::from_millis(pause_ms)).await;
            let asked = Instant::now();
            assert_eq!(grace.give(&mut pending::<()>()).await, None);
            let waited = asked.elapsed();
            assert!(GRACE / 2 <= waited && waited <= GRACE, "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_time_is_kept_for_nobody() {
        let grace = Grace::default();
        assert_eq!(grace.give(&mut ready(())).await, Some(()));
        sleep(GRACE * 2).await;
        assert!(lock(&grace.halves).clock.is_none());
        assert_eq!(grace.give(&mut pending::<()>()).await, None);
    }

    /// A client of locks may outlive the runtime that it was first used on.
    #[test]
    fn time_is_kept_on_another_runtime_too() {
        let grace = Grace::default();
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let told = runtime.unwrap().block_on(grace.give(&mut pending::<()>()));
            assert_eq!(told, None);
        }
    }
}
