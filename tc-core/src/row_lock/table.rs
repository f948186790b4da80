//! The table of row locks: the holders of each row, and the requests in its queue.
//!
//! A row that is held or waited for has a slot, found through a hash index by resource, table and
//! key, and named by a `LockId` everywhere else. The rules of granting are in `queue`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::row_key::RowKey;
use super::slot::{Slot, SlotState};
use crate::collections::chunked_list::ChunkedList;
use crate::collections::hash_index::{HashIndex, hash_of};
use crate::collections::interner::Space;
use crate::contract::{LockMode, Timestamp, Xid};

pub(crate) use super::slot::{Holder, Purpose, QueuePosition, QueuedClaim, Rank, WaitId};

/// A slot of the table, valid while its row is held or waited for.
///
/// Kept as bytes, in the order of numbers: a number would be aligned, and each branch would take
/// more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId([u8; 4]);

impl LockId {
    fn new(slot: usize) -> Self {
        let slot = u32::try_from(slot).expect("BOUNDED: locks_max fits");
        Self(slot.to_be_bytes())
    }

    fn slot(self) -> usize {
        u32::from_be_bytes(self.0) as usize
    }
}

/// Rows that were released or are no longer waited for.
pub(crate) type Touched = SmallVec<[LockId; 8]>;

/// All rows that are held or waited for.
#[derive(Clone, Debug)]
pub(crate) struct LockTable {
    slots: ChunkedList<Option<Slot>>,
    free: Vec<LockId>,
    index: HashIndex<LockId>,
    /// How many branches and requests there are in all slots together.
    places: usize,
}

impl LockTable {
    pub(crate) fn new() -> Self {
        Self { slots: ChunkedList::default(), free: Vec::new(), index: HashIndex::new(), places: 0 }
    }

    /// Makes room for so many rows to come.
    pub(crate) fn reserve(&mut self, rows: usize) {
        let slots = &self.slots;
        self.index.reserve(rows, |&known| slots[known.slot()].as_ref().expect(LIVE).hash());
    }

    /// How many rows are held or waited for.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many branches hold a row and how many requests wait for one, row by row: a row counts
    /// once for each of them.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    pub(crate) fn find(&self, space: &Space, key: &[u8]) -> Option<LockId> {
        self.find_hashed(hash_of(&(space, key)), space, key)
    }

    fn find_hashed(&self, hash: u64, space: &Space, key: &[u8]) -> Option<LockId> {
        let is = |&lock: &LockId| {
            let slot = self.slot(lock);
            slot.key.as_bytes() == key && *slot.space == *space
        };
        self.index.find(hash, is).copied()
    }

    /// Finds the row's slot or makes one; an unused one must be given back with `reclaim`.
    pub(crate) fn find_or_insert(&mut self, space: &Arc<Space>, key: &[u8]) -> LockId {
        let hash = hash_of(&(&**space, key));
        if let Some(found) = self.find_hashed(hash, space, key) {
            return found;
        }
        let key = RowKey::new(key);
        let slot = Some(Slot { space: space.clone(), key, state: SlotState::Unused });
        // The slot freed last is used first: hashes have no part in which slot a row gets (PURE).
        let lock = match self.free.pop() {
            Some(lock) => {
                self.slots[lock.slot()] = slot;
                lock
            }
            None => LockId::new(self.slots.push(slot)),
        };
        let slots = &self.slots;
        self.index.insert(hash, lock, |&known| slots[known.slot()].as_ref().expect(LIVE).hash());
        lock
    }

    /// Frees the slot if the row is neither held nor waited for.
    pub(crate) fn reclaim(&mut self, lock: LockId) {
        // A row may be among the touched ones several times, and is freed the first time.
        let Some(slot) = &mut self.slots[lock.slot()] else { return };
        slot.simplify();
        if !matches!(slot.state, SlotState::Unused) {
            return;
        }
        self.index.remove(slot.hash(), |&known| known == lock);
        self.slots[lock.slot()] = None;
        self.free.push(lock);
    }

    pub(crate) fn space(&self, lock: LockId) -> &Arc<Space> {
        &self.slot(lock).space
    }

    pub(crate) fn key(&self, lock: LockId) -> &[u8] {
        self.slot(lock).key.as_bytes()
    }

    /// Every slot in use, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = LockId> + '_ {
        let ids = (0..).map(LockId::new);
        self.slots.iter().zip(ids).filter(|(slot, _)| slot.is_some()).map(|(_, lock)| lock)
    }

    // ---- holders ----

    pub(crate) fn holders(&self, lock: LockId) -> impl Iterator<Item = Holder> + '_ {
        self.slot(lock).holders()
    }

    /// How many branches hold the row.
    pub(crate) fn holding(&self, lock: LockId) -> usize {
        self.slot(lock).holding()
    }

    /// How many requests wait for the row.
    pub(crate) fn waiting(&self, lock: LockId) -> usize {
        self.slot(lock).queue().map_or(0, BTreeMap::len)
    }

    /// Returns the mode in which a branch holds the row, which it must hold.
    pub(crate) fn mode(&self, lock: LockId, xid: Xid, sequence: u32) -> LockMode {
        let holder = self.slot(lock).holders().find(|holder| holder.branch() == (xid, sequence));
        holder.expect("LOCK-OWNER: a branch is in the lock table for each of its rows").mode
    }

    /// Makes a branch hold the row, beside what it may do with it already. Returns whether it held
    /// it before.
    pub(crate) fn hold(&mut self, lock: LockId, holder: Holder) -> bool {
        let is_more = self.slot_mut(lock).hold(holder);
        self.places += usize::from(is_more);
        !is_more
    }

    /// Gives the branch that holds these rows another sequence number, which is not in use.
    pub(crate) fn renumber(&mut self, held: &[LockId], xid: Xid, from: u32, to: u32) {
        held.iter().for_each(|&lock| self.slot_mut(lock).renumber(xid, from, to));
    }

    /// Makes a branch hold the row no longer. The slot stays until `reclaim`.
    fn release(&mut self, lock: LockId, xid: Xid, sequence: u32) {
        let slot = self.slot_mut(lock);
        let before = slot.holding();
        match &mut slot.state {
            SlotState::Held(sole) if sole.holder().branch() == (xid, sequence) => {
                slot.state = SlotState::Unused;
            }
            SlotState::Contended(contended) => {
                contended.holders.retain(|holder| holder.branch() != (xid, sequence));
            }
            SlotState::Held(_) | SlotState::Unused => {}
        }
        self.places -= before - slot.holding();
    }

    /// Makes a branch hold none of these rows any longer; they are to be settled.
    pub(crate) fn release_branch(
        &mut self,
        held: &[LockId],
        xid: Xid,
        sequence: u32,
        touched: &mut Touched,
    ) {
        for &lock in held {
            self.release(lock, xid, sequence);
            touched.push(lock);
        }
    }

    /// Returns whether the global holds the row in any mode.
    pub(crate) fn holds(&self, lock: LockId, xid: Option<Xid>) -> bool {
        self.holders(lock).any(|holder| Some(holder.xid) == xid)
    }

    /// The rank of a request of the global that would count as waiting from then on.
    pub(crate) fn rank(&self, lock: LockId, xid: Option<Xid>, waits_from: Timestamp) -> Rank {
        if self.holds(lock, xid) { Rank::Holder } else { Rank::Newcomer(waits_from) }
    }

    /// Returns whether the global holds the row in a mode that allows this one.
    pub(crate) fn covers(&self, lock: LockId, xid: Option<Xid>, mode: LockMode) -> bool {
        self.holders(lock).any(|holder| Some(holder.xid) == xid && holder.mode.covers(mode))
    }

    /// The holders of other globals whose mode conflicts with this one.
    pub(crate) fn conflicting_holders(
        &self,
        lock: LockId,
        xid: Option<Xid>,
        mode: LockMode,
    ) -> impl Iterator<Item = Holder> + '_ {
        let conflicts = move |holder: &Holder| holder.mode.conflicts(mode);
        self.holders(lock).filter(move |holder| Some(holder.xid) != xid && conflicts(holder))
    }

    // ---- queue ----

    pub(crate) fn has_queue(&self, lock: LockId) -> bool {
        self.slot(lock).queue().is_some_and(|queue| !queue.is_empty())
    }

    pub(crate) fn enqueue(&mut self, lock: LockId, place: QueuePosition, claim: QueuedClaim) {
        let contended = self.slot_mut(lock).contended();
        if claim.purpose == Purpose::Take {
            contended.takers.entry(claim.mode).or_default().insert(place);
        }
        let is_more = contended.queue.insert(place, claim).is_none();
        self.places += usize::from(is_more);
    }

    pub(crate) fn dequeue(&mut self, lock: LockId, place: QueuePosition) {
        let SlotState::Contended(contended) = &mut self.slot_mut(lock).state else { return };
        let Some(claim) = contended.queue.remove(&place) else { return };
        if let Entry::Occupied(mut places) = contended.takers.entry(claim.mode) {
            places.get_mut().remove(&place);
            if places.get().is_empty() {
                places.remove();
            }
        }
        self.places -= 1;
    }

    /// Returns whether no newcomer can have the row at a place or behind it. In each mode it would
    /// conflict with one of two different modes, and with an exclusive holder in any.
    pub(crate) fn is_closed(&self, lock: LockId, place: QueuePosition) -> bool {
        let held = self.holders(lock).map(|holder| holder.mode);
        let ahead = self.takers(lock).filter(|(_, places)| places.range(..place).next().is_some());
        let mut modes = held.chain(ahead.map(|(mode, _)| mode));
        let Some(first) = modes.next() else { return false };
        first == LockMode::Exclusive || modes.any(|mode| mode != first)
    }

    /// The first in the queue, or the first behind a place. `None` also for a slot that is gone.
    pub(crate) fn next_claim(
        &self,
        lock: LockId,
        after: Option<QueuePosition>,
    ) -> Option<(QueuePosition, QueuedClaim)> {
        let slot = self.slots[lock.slot()].as_ref()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        slot.queue()?.range((from, Bound::Unbounded)).next().map(|(&place, &claim)| (place, claim))
    }

    /// The queue behind a place, or from its beginning, next first.
    pub(crate) fn queue_behind(
        &self,
        lock: LockId,
        after: Option<QueuePosition>,
    ) -> impl Iterator<Item = (QueuePosition, QueuedClaim)> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let queue = self.slot(lock).queue().into_iter();
        let behind = queue.flat_map(move |queue| queue.range((from, Bound::Unbounded)));
        behind.map(|(&place, &claim)| (place, claim))
    }

    /// The whole queue, next first.
    pub(crate) fn queue(
        &self,
        lock: LockId,
    ) -> impl Iterator<Item = (QueuePosition, QueuedClaim)> + '_ {
        self.slot(lock).queue().into_iter().flatten().map(|(&place, &claim)| (place, claim))
    }

    /// The queue before a place, nearest first.
    pub(crate) fn claims_ahead(
        &self,
        lock: LockId,
        place: QueuePosition,
    ) -> impl Iterator<Item = QueuedClaim> + '_ {
        let queue = self.slot(lock).queue().into_iter();
        let ahead = queue.flat_map(move |queue| queue.range(..place).rev());
        ahead.map(|(_, &claim)| claim)
    }

    /// The nearest request before a place that will take the row in a mode that conflicts.
    pub(crate) fn blocking_claim(
        &self,
        lock: LockId,
        place: QueuePosition,
        mode: LockMode,
    ) -> Option<QueuedClaim> {
        let conflicting = self.takers(lock).filter(|(taken, _)| taken.conflicts(mode));
        let nearest = conflicting.filter_map(|(_, places)| places.range(..place).next_back()).max();
        self.slot(lock).queue()?.get(nearest?).copied()
    }

    /// The requests before a place that will take the row in a mode that conflicts with a shared or
    /// delta one, back to the nearest that will take it for itself: that one waits for all before
    /// it.
    pub(crate) fn blocking_claims(
        &self,
        lock: LockId,
        place: QueuePosition,
        mode: LockMode,
    ) -> impl Iterator<Item = QueuedClaim> + '_ {
        let exclusive = self.takers(lock).find(|(taken, _)| *taken == LockMode::Exclusive);
        let last = exclusive.and_then(|(_, places)| places.range(..place).next_back()).copied();
        let range = (last.map_or(Bound::Unbounded, Bound::Included), Bound::Excluded(place));
        let conflicting = self.takers(lock).filter(move |(taken, _)| taken.conflicts(mode));
        let places = conflicting.flat_map(move |(_, places)| places.range(range));
        let queue = self.slot(lock).queue();
        places.filter_map(move |place| queue?.get(place).copied())
    }

    fn takers(
        &self,
        lock: LockId,
    ) -> impl Iterator<Item = (LockMode, &BTreeSet<QueuePosition>)> + '_ {
        let contended = match &self.slot(lock).state {
            SlotState::Contended(contended) => Some(contended),
            SlotState::Unused | SlotState::Held(_) => None,
        };
        let takers = contended.into_iter().flat_map(|contended| &contended.takers);
        takers.map(|(&mode, places)| (mode, places))
    }

    /// Returns whether everything derived from the queue, derived again, agrees.
    pub(crate) fn is_indexed(&self, lock: LockId) -> bool {
        let SlotState::Contended(contended) = &self.slot(lock).state else { return true };
        let mut takers = BTreeMap::<LockMode, BTreeSet<QueuePosition>>::new();
        for (place, claim) in &contended.queue {
            if claim.purpose == Purpose::Take {
                takers.entry(claim.mode).or_default().insert(*place);
            }
        }
        takers == contended.takers
    }

    fn slot(&self, lock: LockId) -> &Slot {
        self.slots[lock.slot()].as_ref().expect(LIVE)
    }

    fn slot_mut(&mut self, lock: LockId) -> &mut Slot {
        self.slots[lock.slot()].as_mut().expect(LIVE)
    }
}

const LIVE: &str = "LOCK-OWNER: a lock that is named is held or waited for";
