//! What a request that was not granted sees of a lock, on a backend outside this process.

use std::time::Duration;

use crate::backend::{Answer, WAITER_BEAT};
use crate::name::{Holder, Token};

/// How seldom the last of a long queue looks.
const POLL_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Seen {
    /// The holder's token, empty if there is none.
    pub(crate) owner: String,
    pub(crate) label: String,
    /// Until the lease ends.
    pub(crate) left: Duration,
    /// How many wait longer.
    pub(crate) ahead: i64,
}

impl Seen {
    pub(crate) fn holder(self) -> Option<Holder> {
        let token = Token::parse(&self.owner).filter(|_| !self.left.is_zero())?;
        Some(Holder { token, label: self.label })
    }

    /// The answer to whoever sees this. With wake-ups only the first in the queue looks for himself
    /// before his next sign of life, when the lease ends; without, the queue polls, the further
    /// behind the more seldom.
    pub(crate) fn answer(self, poll: Option<Duration>) -> Answer {
        let is_first = self.ahead == 0;
        let end = if is_first { self.left + Duration::from_millis(1) } else { WAITER_BEAT };
        let place = u32::try_from(self.ahead).unwrap_or(u32::MAX).saturating_add(1);
        let poll = poll.map_or(WAITER_BEAT, |poll| poll.saturating_mul(place).min(POLL_MAX));
        Answer::Busy { holder: self.holder(), look_again: end.min(poll).min(WAITER_BEAT) }
    }
}
