//! The lease of the lead, by the clock of the store.
//!
//! It keeps candidates from disturbing a leader, and does not decide who leads: the journal does.

use handfast_core::Epoch;

/// How long the lead outlasts its leader, in microseconds of virtual time.
pub(super) const LEASE: u64 = 3_000_000;

/// One life of a coordinator's process, as the store tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseHolder {
    pub(super) server: usize,
    pub(super) life: u64,
}

/// The lease, held or free.
#[derive(Debug, Default)]
pub(super) struct Lease {
    holder: Option<LeaseHolder>,
    epoch: Epoch,
    until: u64,
    /// Until when its holder may rely on it, also if it was taken away.
    relied_on_until: u64,
    /// The same of the holder before.
    displaced_until: u64,
}

/// The answer to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAnswer {
    /// It has the lease, and this epoch.
    Taken(Epoch),
    /// Another process has it, for so long.
    Held { by: usize, epoch: Epoch, left: u64 },
}

impl Lease {
    /// Lets a candidate have the lease if no other process has it. Each time it is taken it has an
    /// epoch that it never had before, no earlier than `at_least`.
    pub(super) fn take(
        &mut self,
        now: u64,
        candidate: LeaseHolder,
        at_least: Epoch,
    ) -> LeaseAnswer {
        let left = self.until.saturating_sub(now);
        if let Some(holder) = self.holder.filter(|holder| *holder != candidate && left > 0) {
            return LeaseAnswer::Held { by: holder.server, epoch: self.epoch, left };
        }
        self.displaced_until = self.relied_on_until;
        self.holder = Some(candidate);
        self.epoch = self.epoch.next().max(at_least);
        self.prolong(now);
        LeaseAnswer::Taken(self.epoch)
    }

    /// Renews the lease if it is still this one. Returns whether it is renewed.
    pub(super) fn renew(&mut self, now: u64, holder: LeaseHolder, epoch: Epoch) -> bool {
        let is_held = self.holder == Some(holder) && self.epoch == epoch;
        if is_held {
            self.prolong(now);
        }
        is_held
    }

    /// Ends the lease if it is still this one.
    pub(super) fn give_up(&mut self, holder: LeaseHolder, epoch: Epoch) {
        if self.holder == Some(holder) && self.epoch == epoch {
            self.holder = None;
        }
    }

    /// Ends the lease without telling its holder.
    pub(super) fn take_away(&mut self) {
        self.holder = None;
    }

    /// Returns until when an earlier holder may believe that no other process can lead.
    pub(super) fn displaced_until(&self) -> u64 {
        self.displaced_until
    }

    fn prolong(&mut self, now: u64) {
        self.until = now + LEASE;
        self.relied_on_until = self.until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LeaseHolder = LeaseHolder { server: 1, life: 1 };
    const TWO: LeaseHolder = LeaseHolder { server: 2, life: 1 };

    #[test]
    fn a_lease_is_taken_when_it_has_run_out() {
        let mut lease = Lease::default();
        assert_eq!(lease.take(0, ONE, Epoch(5)), LeaseAnswer::Taken(Epoch(5)));
        let held = LeaseAnswer::Held { by: 1, epoch: Epoch(5), left: 1 };
        assert_eq!(lease.take(LEASE - 1, TWO, Epoch(0)), held);
        assert_eq!(lease.take(LEASE, TWO, Epoch(0)), LeaseAnswer::Taken(Epoch(6)));
        assert_eq!(lease.displaced_until(), LEASE);
        assert!(!lease.renew(LEASE, ONE, Epoch(5)));
        assert!(lease.renew(LEASE, TWO, Epoch(6)));
    }

    #[test]
    fn a_lease_that_was_taken_again_is_not_given_up_for_the_one_before() {
        let mut lease = Lease::default();
        lease.take(0, ONE, Epoch(0));
        assert_eq!(lease.take(0, ONE, Epoch(0)), LeaseAnswer::Taken(Epoch(2)));
        lease.give_up(ONE, Epoch(1));
        assert!(lease.renew(0, ONE, Epoch(2)));
        lease.give_up(ONE, Epoch(2));
        assert_eq!(lease.take(0, TWO, Epoch(0)), LeaseAnswer::Taken(Epoch(3)));
    }
}
