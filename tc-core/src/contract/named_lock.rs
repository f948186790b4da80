//! A lease as it is asked for, and as it is stored.

use std::fmt;
use std::sync::Arc;

use super::id::{FencingToken, Timestamp, Xid};

/// The id of a lease: epoch in the upper bits, counter in the lower 40.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// One acquisition, as its client names it: never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockToken {
    /// The client: random.
    pub client: [u8; 16],
    /// The number of the acquisition among the client's.
    pub number: u64,
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", u128::from_be_bytes(self.client), self.number)
    }
}

/// How much of a named lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockShare {
    /// All of it: no other client holds any of it.
    All,
    /// One of this many equal parts; meanwhile no client holds all of it.
    Part {
        /// The number of parts. All holders of a part agree on it.
        of: u32,
    },
}

/// A named lock to be acquired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLease {
    /// The name of the lock.
    pub name: Arc<str>,
    /// The acquisition: asked again, it is answered as before.
    pub token: LockToken,
    /// How much of it. Asking for a part with the token of a lease of all gives the rest back.
    pub share: LockShare,
    /// The global that owns the lease. It then ends with its global and at no other time.
    pub xid: Option<Xid>,
    /// The client's name for itself, for operators.
    pub label: Arc<str>,
    /// How long it lasts without renewal.
    pub lease_ms: u64,
    /// If the lease runs out without being released, no other client gets the lock for this long.
    /// Limited like the lease.
    pub delay_ms: u64,
    /// No renewal extends it beyond this time from its grant.
    pub hold_ms_max: Option<u64>,
    /// How long to wait in the queue; 0 does not wait.
    pub wait_ms: u64,
}

/// A lease as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its id.
    pub id: LeaseId,
    /// The name of the lock.
    pub name: Arc<str>,
    /// The acquisition.
    pub token: LockToken,
    /// How much of the lock.
    pub share: LockShare,
    /// The global that owns it.
    pub xid: Option<Xid>,
    /// Larger than that of every earlier holder; holders of parts beside each other have the
    /// same.
    pub fence: FencingToken,
    /// The client's name for itself.
    pub label: Arc<str>,
    /// The application that it belongs to; empty in records without it.
    pub application: Arc<str>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When its time is up, unless it is renewed. Without meaning if a global owns it.
    pub ends_at: Timestamp,
    /// The length of the last grant or renewal, in milliseconds; 0 in records without it.
    pub lease_ms: u64,
    /// No renewal extends it beyond this moment.
    pub hold_until: Option<Timestamp>,
    /// If the lease runs out, no other client gets the lock for this long.
    pub delay_ms: u64,
}

/// A holder of a named lock, for refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHeld {
    /// Its acquisition.
    pub token: LockToken,
    /// The client's name for itself.
    pub label: Arc<str>,
}

impl LeaseRecord {
    /// Returns whether its holder may rely on it.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.xid.is_some() || now < self.ends_at
    }

    /// Returns when its place becomes free for others, unless it is renewed or released; `None` if
    /// a global owns it.
    #[must_use]
    pub fn frees_at(&self) -> Option<Timestamp> {
        self.xid.is_none().then(|| self.ends_at.after_ms(self.delay_ms))
    }

    /// Renews it for this long from now on, unless that exceeds its longest hold. Returns whether
    /// it was renewed.
    pub(crate) fn renew(&mut self, now: Timestamp, lease_ms: u64) -> bool {
        let until = now.after_ms(lease_ms);
        let may = self.hold_until.is_none_or(|end| until <= end);
        if may {
            (self.ends_at, self.lease_ms) = (until, lease_ms);
        }
        may
    }

    /// Moves its end as if it had just been renewed: a clock that has jumped since does not shorten
    /// it, and one that was set back does not prolong it.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        if self.lease_ms == 0 {
            return;
        }
        self.ends_at = now.after_ms(self.lease_ms);
        self.hold_until = self.hold_until.map(|until| {
            let hold_ms_max = until.0.saturating_sub(self.granted_at.0);
            until.min(now.after_ms(hold_ms_max)).max(self.ends_at)
        });
    }

    pub(crate) fn held_by(&self) -> LockHeld {
        LockHeld { token: self.token, label: self.label.clone() }
    }
}
