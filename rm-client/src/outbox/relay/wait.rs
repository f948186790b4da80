//! The pauses of a relay: none while there is work, longer and longer ones while there is none.

use std::time::Duration;

use super::Round;

pub(super) const SHORTEST: Duration = Duration::from_millis(2);
/// The longest pause between two attempts to reach a broker or database that does not serve.
pub(super) const UNAVAILABLE_MAX: Duration = Duration::from_secs(5);

/// The growing pause between rounds.
#[derive(Debug)]
pub struct Wait {
    idle_max: Duration,
    pause: Duration,
}

impl Wait {
    /// Creates one without a pause so far.
    #[must_use]
    pub fn new(idle_max: Duration) -> Self {
        Self { idle_max, pause: Duration::ZERO }
    }

    /// Returns the pause after a round.
    pub fn after(&mut self, round: Round) -> Duration {
        let longest = match round {
            Round::Busy => Duration::ZERO,
            Round::Idle => self.idle_max,
            Round::Skipped => self.idle_max.min(UNAVAILABLE_MAX),
            Round::Unavailable => UNAVAILABLE_MAX,
        };
        self.pause = (self.pause * 2).clamp(SHORTEST.min(longest), longest);
        self.pause
    }

    /// Resets the pause after the database's notification: an event was committed.
    pub fn reset(&mut self) {
        self.pause = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_end_with_work() {
        let mut wait = Wait::new(Duration::from_millis(10));
        let pauses = [Round::Idle; 5].map(|round| wait.after(round).as_millis());
        assert_eq!(pauses, [2, 4, 8, 10, 10]);
        assert_eq!(wait.after(Round::Busy), Duration::ZERO);
        assert_eq!(wait.after(Round::Unavailable).as_millis(), 2);
        for _ in 0..20 {
            wait.after(Round::Unavailable);
        }
        assert_eq!(wait.after(Round::Unavailable), UNAVAILABLE_MAX);
        wait.reset();
        assert_eq!(wait.after(Round::Idle), SHORTEST);
    }
}
