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
    /// One of so many equal parts; no client holds all meanwhile.
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
    /// After its time was up, unreleased, no other client gets the lock for so long. As limited as
    /// the lease.
    pub delay_ms: u64,
    /// No renewal lets it last longer than this from its grant.
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
    /// The application that it belongs to; empty where it was not noted.
    pub application: Arc<str>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When its time is up, unless it is renewed, or owned by a global.
    pub ends_at: Timestamp,
    /// For how long it was granted or renewed last, in milliseconds; 0 where it was not noted.
    pub lease_ms: u64,
    /// No renewal lets it last longer than until then.
    pub hold_until: Option<Timestamp>,
    /// After its time was up no other client gets the lock for so long.
    pub delay_ms: u64,
}

/// A holder of a named lock, for refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHeld {
    /// By which acquisition.
    pub token: LockToken,
    /// The client's name for itself.
    pub label: Arc<str>,
}

impl LeaseRecord {
    /// Whether its holder may rely on it.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.xid.is_some() || now < self.ends_at
    }

    /// When its place is another's, if nothing happens to it.
    #[must_use]
    pub fn frees_at(&self) -> Option<Timestamp> {
        self.xid.is_none().then(|| self.ends_at.after_ms(self.delay_ms))
    }

    /// Lets it last for so long from here on, if it may. Whether it does.
    pub(crate) fn renew(&mut self, now: Timestamp, lease_ms: u64) -> bool {
        let until = now.after_ms(lease_ms);
        let may = self.hold_until.is_none_or(|end| until <= end);
        if may {
            (self.ends_at, self.lease_ms) = (until, lease_ms);
        }
        may
    }

    /// Ends as if its last renewal were of now, whatever the clock has done since: it is no shorter
    /// for a clock that has jumped, and no longer for one that was set back.
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
