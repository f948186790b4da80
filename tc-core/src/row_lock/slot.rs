//! A row that is held or waited for: its holders, and the claims of the requests in its queue.
//!
//! Millions of rows may be held, nearly all by a sole holder that nothing waits for. Such a row
//! takes no memory but its slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::row_key::RowKey;
use crate::collections::hash_index::hash_of;
use crate::collections::interner::Space;
use crate::contract::{LockMode, Timestamp, Xid};

/// A request that waits for locks; a later request has a greater id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitId(pub(crate) u64);

/// A branch that holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) xid: Xid,
    /// The branch's place in its global.
    pub(crate) sequence: u32,
    pub(crate) mode: LockMode,
}

/// A place in a row's queue: in order of rank, then of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    pub(crate) rank: Rank,
    pub(crate) id: WaitId,
}

/// The order of places in a row's queue, before the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The global holds the row already. It stands before all others, since they wait for it to
    /// release the row: behind them it would wait for them in turn, forever.
    Holder,
    /// The time from which a newcomer to the row counts as waiting. A global that holds other rows
    /// gets a head start (`queue`).
    Newcomer(Timestamp),
}

/// The claim of a request in the queue on the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedClaim {
    /// `None` for a check outside a global.
    pub(crate) xid: Option<Xid>,
    pub(crate) mode: LockMode,
    pub(crate) purpose: Purpose,
}

/// Whether a request takes the row when it is its turn. No request waits for one that does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Take,
    Check,
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) space: Arc<Space>,
    pub(super) key: RowKey,
    pub(super) state: SlotState,
}

/// The holders of a row and its queue.
#[derive(Clone, Debug)]
pub(super) enum SlotState {
    Unused,
    Held(SoleHolder),
    /// Where there is more than one holder, a delta one, or a queue.
    Contended(Box<Contended>),
}

/// The only holder of a row that nothing waits for. Nearly all rows are held so.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoleHolder {
    xid: Xid,
    sequence: u32,
    mode: SoleMode,
}

/// The modes without a tag, which would make every slot larger.
#[derive(Clone, Copy, Debug)]
enum SoleMode {
    Shared,
    Exclusive,
}

/// The holders of a row and the requests for it, of which there may be several.
#[derive(Clone, Debug, Default)]
pub(super) struct Contended {
    pub(super) holders: Vec<Holder>,
    pub(super) queue: BTreeMap<QueuePosition, QueuedClaim>,
    /// The places of requests that will take the row, by the mode in which they will.
    pub(super) takers: BTreeMap<LockMode, BTreeSet<QueuePosition>>,
}

impl Slot {
    pub(super) fn hash(&self) -> u64 {
        hash_of(&(&*self.space, self.key.as_bytes()))
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = Holder> + '_ {
        let (sole, several): (_, &[Holder]) = match &self.state {
            SlotState::Unused => (None, &[]),
            SlotState::Held(sole) => (Some(sole.holder()), &[]),
            SlotState::Contended(contended) => (None, &contended.holders),
        };
        sole.into_iter().chain(several.iter().copied())
    }

    pub(super) fn holding(&self) -> usize {
        match &self.state {
            SlotState::Unused => 0,
            SlotState::Held(_) => 1,
            SlotState::Contended(contended) => contended.holders.len(),
        }
    }

    /// Adds a holder, or makes it hold the row in one more mode. Returns whether it is added.
    pub(super) fn hold(&mut self, holder: Holder) -> bool {
        match (&mut self.state, SoleHolder::of(holder)) {
            (SlotState::Held(sole), _) if sole.holder().branch() == holder.branch() => {
                // Two modes together are the exclusive one, see `LockMode::joined`.
                if sole.holder().mode != holder.mode {
                    sole.mode = SoleMode::Exclusive;
                }
                false
            }
            (SlotState::Unused, Some(sole)) => {
                self.state = SlotState::Held(sole);
                true
            }
            (SlotState::Unused | SlotState::Held(_) | SlotState::Contended(_), _) => {
                self.contended().hold(holder)
            }
        }
    }

    /// Makes the holder with one sequence number of its global the one with another.
    pub(super) fn renumber(&mut self, xid: Xid, from: u32, to: u32) {
        match &mut self.state {
            SlotState::Unused => {}
            SlotState::Held(sole) if sole.holder().branch() == (xid, from) => sole.sequence = to,
            SlotState::Held(_) => {}
            SlotState::Contended(contended) => {
                let mut holders = contended.holders.iter_mut();
                if let Some(holder) = holders.find(|holder| holder.branch() == (xid, from)) {
                    holder.sequence = to;
                }
            }
        }
    }

    pub(super) fn queue(&self) -> Option<&BTreeMap<QueuePosition, QueuedClaim>> {
        match &self.state {
            SlotState::Unused | SlotState::Held(_) => None,
            SlotState::Contended(contended) => Some(&contended.queue),
        }
    }

    /// Makes room for more than a single holder.
    pub(super) fn contended(&mut self) -> &mut Contended {
        if !matches!(self.state, SlotState::Contended(_)) {
            let holders = self.holders().collect();
            self.state =
                SlotState::Contended(Box::new(Contended { holders, ..Contended::default() }));
        }
        match &mut self.state {
            SlotState::Contended(contended) => contended,
            SlotState::Unused | SlotState::Held(_) => unreachable!("it has just been made so"),
        }
    }

    /// Gives up what a single holder does not need.
    pub(super) fn simplify(&mut self) {
        let SlotState::Contended(contended) = &self.state else { return };
        if !contended.queue.is_empty() {
            return;
        }
        match contended.holders[..] {
            [] => self.state = SlotState::Unused,
            [holder] => {
                if let Some(sole) = SoleHolder::of(holder) {
                    self.state = SlotState::Held(sole);
                }
            }
            _ => {}
        }
    }
}

impl Contended {
    fn hold(&mut self, holder: Holder) -> bool {
        let known = self.holders.iter_mut().find(|known| known.branch() == holder.branch());
        if let Some(known) = known {
            known.mode = known.mode.joined(holder.mode);
            return false;
        }
        self.holders.push(holder);
        true
    }
}

impl SoleHolder {
    /// Returns the holder as the only one of its row, if its mode has no tag.
    fn of(holder: Holder) -> Option<Self> {
        let mode = match holder.mode {
            LockMode::Shared => SoleMode::Shared,
            LockMode::Exclusive => SoleMode::Exclusive,
            LockMode::Delta(_) => return None,
        };
        Some(Self { xid: holder.xid, sequence: holder.sequence, mode })
    }

    pub(super) fn holder(self) -> Holder {
        let mode = match self.mode {
            SoleMode::Shared => LockMode::Shared,
            SoleMode::Exclusive => LockMode::Exclusive,
        };
        Holder { xid: self.xid, sequence: self.sequence, mode }
    }
}

impl Holder {
    pub(super) fn branch(self) -> (Xid, u32) {
        (self.xid, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Millions of rows may be held.
    #[test]
    fn a_slot_stays_small() {
        assert_eq!(size_of::<Option<Slot>>(), 48);
    }
}
