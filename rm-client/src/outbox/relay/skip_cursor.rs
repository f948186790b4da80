//! The cursor behind the events that a relay could not publish or claim. It keeps them from
//! blocking the events behind them, and says when the relay searches from the start again.
//!
//! ```text
//! events by number:  x x x | x x x | a b        x: not accepted, or locked by its writer
//! searches:          1       2       3          behind an x its key is skipped
//!                    └ again, after a pause that doubles while there are any
//! ```

use std::time::Duration;

use handfast_rm_core::relay::{PAUSE_MIN, UNAVAILABLE_PAUSE_MAX};
use tokio::time::Instant;

/// The number up to which events are skipped, and the pause until they are tried again.
#[derive(Debug, Default)]
pub(super) struct SkipCursor {
    /// 0 if no event is skipped.
    up_to: i64,
    /// Whether there may be more events behind those that the last round skipped.
    goes_on: bool,
    again_at: Option<Instant>,
    pause: Duration,
}

impl SkipCursor {
    /// Returns the number after which to search. It is not the start before the end was reached or
    /// an event was published, so that events behind many that fail are tried too.
    pub(super) fn search_after(&mut self, now: Instant) -> i64 {
        if !self.goes_on && self.again_at.is_none_or(|again_at| again_at <= now) {
            self.up_to = 0;
        }
        self.up_to
    }

    /// Skips all events up to this number, none of which could be published.
    pub(super) fn skip_to(&mut self, seq: i64, now: Instant) {
        if self.up_to == 0 {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, UNAVAILABLE_PAUSE_MAX);
            self.again_at = Some(now + self.pause);
        }
        self.up_to = self.up_to.max(seq);
        self.goes_on = true;
    }

    /// Records that the end was reached or an event was published.
    pub(super) fn finish_pass(&mut self) {
        self.goes_on = false;
        // Only a pass from the start has met all events, and none that had to be skipped.
        if self.up_to == 0 {
            self.pause = Duration::ZERO;
        }
    }

    /// Returns the longest allowed pause, if skipped events wait to be tried again.
    pub(super) fn pause_max(&self, now: Instant) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.up_to > 0)?;
        Some(if self.goes_on {
            UNAVAILABLE_PAUSE_MAX
        } else {
            again_at.saturating_duration_since(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_behind_are_tried_before_the_search_restarts() {
        let (mut cursor, start) = (SkipCursor::default(), Instant::now());
        assert_eq!(cursor.search_after(start), 0);
        cursor.skip_to(3, start);
        let late = start + UNAVAILABLE_PAUSE_MAX;
        assert_eq!(cursor.search_after(late), 3);
        cursor.skip_to(6, late);
        assert_eq!(cursor.search_after(late), 6);
        cursor.finish_pass();
        assert_eq!(cursor.search_after(start), 6);
        assert_eq!(cursor.pause_max(start), Some(PAUSE_MIN));
        assert_eq!(cursor.search_after(late), 0);
        assert_eq!(cursor.pause_max(late), None);
    }

    #[test]
    fn restarts_get_rarer_until_no_event_is_skipped() {
        let (mut cursor, start) = (SkipCursor::default(), Instant::now());
        let mut again = || {
            let after = cursor.search_after(start + UNAVAILABLE_PAUSE_MAX * 2);
            cursor.skip_to(1, start);
            cursor.finish_pass();
            (after, cursor.pause_max(start))
        };
        assert_eq!(again(), (0, Some(PAUSE_MIN)));
        assert_eq!(again(), (0, Some(PAUSE_MIN * 2)));
        for _ in 0..20 {
            again();
        }
        assert_eq!(again(), (0, Some(UNAVAILABLE_PAUSE_MAX)));
        assert_eq!(cursor.search_after(start + UNAVAILABLE_PAUSE_MAX), 0);
        cursor.finish_pass();
        cursor.skip_to(1, start);
        cursor.finish_pass();
        assert_eq!(cursor.pause_max(start), Some(PAUSE_MIN));
    }
}
