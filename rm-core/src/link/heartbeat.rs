//! Finds out whether a coordinator that owes answers is alive.
//!
//! A connection to a frozen host or process stays open and carries nothing. While requests are
//! unanswered and nothing at all has arrived for a moment, the coordinator is asked for a sign of
//! life, which it gives at once, whatever the requests wait for. Without one the connection is
//! given up. A link that waits for nothing asks nothing: the transport's keep-alive is enough.

use std::time::Duration;

use super::event::Moment;

/// How long the coordinator may be silent before it is asked. Too short: each long wait for a lock
/// costs messages. Too long: a frozen coordinator is noticed late.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// How long its answer may take. Too short: a busy coordinator is taken for dead, and every client
/// that waits reconnects. Too long: as above.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// A check that is this much later than due means that this process was not running: messages that
/// arrived meanwhile are not read yet, so the silence proves nothing.
const LATE: Duration = Duration::from_millis(500);

/// How long the coordinator has been silent, and whether it was asked.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    state: State,
    asks: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No answer is owed.
    #[default]
    Idle,
    Quiet {
        since: Moment,
    },
    Asked {
        at: Moment,
    },
}

impl Heartbeat {
    /// Begins to watch: an answer is owed.
    pub(super) fn start(&mut self, now: Moment) {
        if self.state == State::Idle {
            self.state = State::Quiet { since: now };
        }
    }

    /// Takes note of a message, of whatever kind.
    pub(super) fn heard(&mut self, now: Moment, is_owed_more: bool) {
        self.state = if is_owed_more { State::Quiet { since: now } } else { State::Idle };
        self.asks = false;
    }

    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the coordinator is to be asked for a sign of life.
    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    /// Takes note that the coordinator is being asked.
    pub(super) fn asked(&mut self) {
        self.asks = false;
    }

    /// Lets time pass. Returns whether the coordinator is to be given up.
    pub(super) fn is_lost(&mut self, now: Moment) -> bool {
        if self.next_deadline().is_none_or(|due| due > now) {
            return false;
        }
        let is_lost = match self.state {
            State::Asked { at } => now < at.after(ANSWER_WITHIN).after(LATE),
            State::Idle | State::Quiet { .. } => false,
        };
        self.asks |= matches!(self.state, State::Quiet { .. });
        // After a late check this leaves a whole answer time, in which unread messages are read.
        self.state = State::Asked { at: now };
        is_lost
    }

    /// Returns when to call [`is_lost`](Self::is_lost) next.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        match self.state {
            State::Idle => None,
            State::Quiet { since } => Some(since.after(ASK_AFTER)),
            State::Asked { at } => Some(at.after(ANSWER_WITHIN)),
        }
    }
}
