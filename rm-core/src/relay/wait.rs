//! The pauses of a relay: none while there is work, longer and longer ones while there is none.

use std::time::Duration;

/// The shortest pause after a round that found nothing to do.
pub const PAUSE_MIN: Duration = Duration::from_millis(2);
/// The longest pause between two attempts to reach a broker or database that does not serve.
pub const UNAVAILABLE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The result of one round of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There was something to do.
    Busy,
    /// There was nothing to do.
    Idle,
    /// No event that was looked at could be published; later ones may be.
    Skipped,
    /// Broker or database do not serve.
    Unavailable,
}

/// The pauses so far.
#[derive(Debug)]
pub struct Wait {
    idle_max: Duration,
    pause: Duration,
}

impl Wait {
    /// Makes a wait without pauses so far.
    #[must_use]
    pub fn new(idle_max: Duration) -> Self {
        Self { idle_max, pause: Duration::ZERO }
    }

    /// Returns the pause after a round.
    pub fn after(&mut self, round: Round) -> Duration {
        let longest = match round {
            Round::Busy => Duration::ZERO,
            Round::Idle => self.idle_max,
            Round::Skipped => self.idle_max.min(UNAVAILABLE_PAUSE_MAX),
            Round::Unavailable => UNAVAILABLE_PAUSE_MAX,
        };
        self.pause = (self.pause * 2).clamp(PAUSE_MIN.min(longest), longest);
        self.pause
    }

    /// Ends the pauses, since an event was committed.
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
        assert_eq!(wait.after(Round::Unavailable), UNAVAILABLE_PAUSE_MAX);
        wait.reset();
        assert_eq!(wait.after(Round::Idle), PAUSE_MIN);
    }
}
