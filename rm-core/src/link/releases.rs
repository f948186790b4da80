//! Releases of named locks that a crash of the coordinator may undo.
//!
//! The coordinator answers a release before it is stored, and stores it with what comes next
//! (`docs/decisions/0011-a-release-is-answered-at-once.md`). A client that reconnects soon after
//! sends it again, so that the lock does not stay taken without a holder until its lease ends. A
//! release that did take effect finds nothing the second time: an acquisition's token is never used
//! again.

use std::collections::VecDeque;
use std::time::Duration;

use handfast_proto::v1::client_message::Body as Ask;

use super::event::{Moment, RequestId};
use super::frame::Frame;

/// A coordinator that answers this long after a release has stored it.
const STORED_AFTER: Duration = Duration::from_secs(1);
/// How many releases are kept, the newest (BOUNDED).
const RELEASES_MAX: usize = 8_192;

/// Releases that were answered, oldest first.
#[derive(Debug, Default)]
pub(super) struct Releases {
    answered: VecDeque<Answered>,
}

#[derive(Debug)]
struct Answered {
    at: Moment,
    /// The first request that was made after the answer.
    next: RequestId,
    release: Frame,
}

impl Releases {
    /// Keeps a release that was answered; `next` is the id of the next request.
    pub(super) fn note(&mut self, now: Moment, next: RequestId, release: Frame) {
        while self.answered.pop_front_if(|it| it.at.after(STORED_AFTER) <= now).is_some() {}
        if self.answered.len() == RELEASES_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered { at: now, next, release });
    }

    /// Forgets the releases that are stored by now. The coordinator answers a request for a lock
    /// only when every earlier decision is stored, so all releases that were answered before this
    /// request was made are stored.
    pub(super) fn are_stored(&mut self, request: RequestId) {
        while self.answered.pop_front_if(|it| it.next <= request).is_some() {}
    }

    /// Takes the releases that are to be sent again.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Ask> + use<> {
        let answered = std::mem::take(&mut self.answered).into_iter();
        let messages = answered.flat_map(|it| it.release.decoded().messages);
        messages.filter_map(|message| message.body)
    }
}
