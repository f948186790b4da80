//! How far a relay has passed over what it could not publish or claim, so that the rest is not
//! kept back by it, and when it begins from the start again.
//!
//! ```text
//! events by number:  x x x | x x x | a b        x: not served, or locked by its writer
//! looks:             1       2       3          of each key nothing behind an x
//!                    └ again, after a pause that doubles while there are any
//! ```

use std::time::Duration;

use handfast_rm_core::relay::{PAUSE_MIN, UNAVAILABLE_PAUSE_MAX};
use tokio::time::Instant;

/// The number up to which events are passed over.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// 0: none are.
    up_to: i64,
    /// What the last round has passed over may have more behind it.
    goes_on: bool,
    again_at: Option<Instant>,
    pause: Duration,
}

impl Passed {
    /// After which number to look. Not from the start before the end has been reached or something
    /// published: what is behind many that fail has its turn too.
    pub(super) fn begin(&mut self, now: Instant) -> i64 {
        if !self.goes_on && self.again_at.is_none_or(|again_at| again_at <= now) {
            self.up_to = 0;
        }
        self.up_to
    }

    /// Nothing up to here could be published.
    pub(super) fn pass(&mut self, seq: i64, now: Instant) {
        if self.up_to == 0 {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, UNAVAILABLE_PAUSE_MAX);
            self.again_at = Some(now + self.pause);
        }
        self.up_to = self.up_to.max(seq);
        self.goes_on = true;
    }

    /// There was nothing more, or some of it is published.
    pub(super) fn rest(&mut self) {
        self.goes_on = false;
        if self.up_to == 0 {
            self.pause = Duration::ZERO;
        }
    }

    /// The longest that a pause may be, where something waits to be tried again.
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
    fn what_is_behind_has_its_turn_before_it_begins_again() {
        let (mut passed, start) = (Passed::default(), Instant::now());
        assert_eq!(passed.begin(start), 0);
        passed.pass(3, start);
        let late = start + UNAVAILABLE_PAUSE_MAX;
        assert_eq!(passed.begin(late), 3);
        passed.pass(6, late);
        assert_eq!(passed.begin(late), 6);
        passed.rest();
        assert_eq!(passed.begin(start), 6);
        assert_eq!(passed.pause_max(start), Some(PAUSE_MIN));
        assert_eq!(passed.begin(late), 0);
        assert_eq!(passed.pause_max(late), None);
    }

    #[test]
    fn it_begins_again_less_and_less_often_until_there_is_nothing_to_pass() {
        let (mut passed, start) = (Passed::default(), Instant::now());
        let mut again = || {
            let after = passed.begin(start + UNAVAILABLE_PAUSE_MAX * 2);
            passed.pass(1, start);
            passed.rest();
            (after, passed.pause_max(start))
        };
        assert_eq!(again(), (0, Some(PAUSE_MIN)));
        assert_eq!(again(), (0, Some(PAUSE_MIN * 2)));
        for _ in 0..20 {
            again();
        }
        assert_eq!(again(), (0, Some(UNAVAILABLE_PAUSE_MAX)));
        assert_eq!(passed.begin(start + UNAVAILABLE_PAUSE_MAX), 0);
        passed.rest();
        passed.pass(1, start);
        passed.rest();
        assert_eq!(passed.pause_max(start), Some(PAUSE_MIN));
    }
}
