//! What is known of a lock while it is held.

use std::time::Duration;

use super::{Settings, Until};
use crate::clock::Moment;
use crate::error::Lost;
use crate::name::Fence;

#[derive(Debug)]
pub(super) struct Held {
    pub(super) fence: Fence,
    /// When holding must end, if there is a limit.
    pub(super) end_at: Option<Moment>,
    pub(super) until: Until,
    pub(super) renew_at: Moment,
    /// When the renewal that is under way was sent.
    pub(super) renewing: Option<Moment>,
    pub(super) downgrade: Downgrade,
}

/// Whether the backend is to be told that the holder is a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Downgrade {
    /// No, or it has been.
    None,
    /// It is being told.
    Sent,
    /// It is to be told again then.
    At(Moment),
}

impl Held {
    /// When it is to be renewed or repeated, at the deadline at the latest.
    pub(super) fn timer(&self) -> Moment {
        let renew_at = if self.renewing.is_some() { self.until.deadline } else { self.renew_at };
        let next = self.until.deadline.min(renew_at);
        if let Downgrade::At(at) = self.downgrade { next.min(at) } else { next }
    }
}

/// Until when a lease that was asked for at that time is surely ours.
pub(super) fn until(sent_at: Moment, end_at: Option<Moment>, settings: &Settings) -> Until {
    let lease: Duration = settings.lease.saturating_sub(settings.margin());
    match end_at {
        Some(end) if end <= sent_at + lease => Until { deadline: end, then: Lost::MaxHold },
        Some(_) | None => Until { deadline: sent_at + lease, then: Lost::Deadline },
    }
}
