//! The epochs of coordinators, as the link sees them in greetings and in notices of the leader.
//!
//! One coordinator leads at a time, and each lead has a later epoch than the one before. A leader
//! that was cut off or asleep may greet although another leads by now. It finds out within the
//! lease of its store, a few seconds. Until then a client that has seen a later epoch keeps away
//! from it.

use std::time::Duration;

use super::event::Moment;

/// How long an earlier epoch is refused after a later one was last connected: longer than a deposed
/// leader may take to notice. An end is needed, since a coordinator whose records are lost may
/// begin with an earlier epoch than it had before.
const DEPOSED_FOR: Duration = Duration::from_secs(10);

/// The latest epochs of both kinds.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// The epoch that greeted last.
    greeted: u64,
    /// When its coordinator was last connected.
    connected_at: Moment,
    /// The epoch of the leader to which the link was sent last.
    redirected: u64,
}

impl Epochs {
    /// Takes note of a greeting. Returns whether its coordinator may lead.
    pub(super) fn greet(&mut self, now: Moment, epoch: u64) -> bool {
        if epoch < self.greeted && now < self.connected_at.after(DEPOSED_FOR) {
            return false;
        }
        // A notice that names this leader, or an earlier one, is no news from here on.
        (self.greeted, self.connected_at, self.redirected) = (epoch, now, epoch);
        true
    }

    /// Takes note of the end of the connection.
    pub(super) fn disconnect(&mut self, now: Moment) {
        self.connected_at = now;
    }

    /// Takes note of a notice that names a leader. Returns whether that is news: two coordinators
    /// that name each other would send the link to and fro without a pause.
    pub(super) fn redirect(&mut self, epoch: u64) -> bool {
        let is_news = epoch > self.redirected;
        self.redirected = self.redirected.max(epoch);
        is_news
    }
}
