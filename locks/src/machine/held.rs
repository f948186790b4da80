//! The state of a lock while it is held.

use std::time::Duration;

use super::{Expiry, Settings};
use crate::clock::Moment;
use crate::error::LossReason;
use crate::name::FencingToken;

#[derive(Debug)]
pub(super) struct HeldState {
    pub(super) fencing_token: FencingToken,
    /// When holding must end, if there is a limit.
    pub(super) end_at: Option<Moment>,
    pub(super) expiry: Expiry,
    pub(super) renew_at: Moment,
    /// When the renewal under way was sent.
    pub(super) renewing: Option<Moment>,
    pub(super) downgrade: Downgrade,
}

/// Whether the backend must learn that the holder is a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Downgrade {
    /// No, or it knows.
    None,
    /// A request is under way.
    Sent { is_repeated: bool },
    /// A request is repeated then.
    At(Moment),
}

impl Downgrade {
    pub(super) fn is_sent(self) -> bool {
        matches!(self, Self::Sent { .. })
    }
}

impl HeldState {
    /// Returns when a renewal or a repetition is due, at the latest at the deadline.
    pub(super) fn timer(&self) -> Moment {
        let renew_at = if self.renewing.is_some() { self.expiry.deadline } else { self.renew_at };
        let next = self.expiry.deadline.min(renew_at);
        if let Downgrade::At(at) = self.downgrade { next.min(at) } else { next }
    }
}

/// Returns until when a lease that was requested at `sent_at` is surely held.
pub(super) fn expiry(sent_at: Moment, end_at: Option<Moment>, settings: &Settings) -> Expiry {
    let lease: Duration = settings.lease.saturating_sub(settings.safety_margin());
    match end_at {
        Some(end) if end <= sent_at + lease => Expiry { deadline: end, loss: LossReason::MaxHold },
        Some(_) | None => Expiry { deadline: sent_at + lease, loss: LossReason::Deadline },
    }
}
