//! All leases and all requests that wait for one, with what must always agree with them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap;

use super::barred::Barred;
use super::turn::{Turn, TurnId};
use crate::contract::{
    ClientId, Correlation, LeaseId, LeaseRecord, LockHeld, LockShare, LockToken, Timestamp, Xid,
};
use crate::shares::ShareTally;

/// Changes go through the methods here, so that every index agrees with what it is an index of.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseTable {
    pub(super) locks: BTreeMap<Arc<str>, NamedLock>,
    /// Like the other hash maps, never iterated where the order would show (PURE).
    leases: HashMap<LeaseId, LeaseRecord>,
    turns: BTreeMap<TurnId, Turn>,
    last_turn: TurnId,
    by_token: HashMap<LockToken, Acquisition>,
    /// The acquisitions that a global owns or waits for.
    by_xid: BTreeSet<(Xid, Acquisition)>,
    frees: BTreeSet<(Timestamp, LeaseId)>,
    deadlines: BTreeSet<(Timestamp, TurnId)>,
    by_correlation: HashMap<Correlation, TurnId>,
    pub(super) barred: Barred,
    /// Over which connections they were acquired, as far as that is known.
    clients: HashMap<LeaseId, ClientId>,
    tally: ShareTally,
    waiting: ShareTally,
}

/// A lock that is held or waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedLock {
    pub(super) held: BTreeSet<LeaseId>,
    /// In order of arrival; [`LeaseTable::queue`] says which is next.
    pub(super) queue: BTreeSet<TurnId>,
}

/// The acquisition that a token stands for. Held ones come before waiting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Acquisition {
    Held(LeaseId),
    Waits(TurnId),
}

impl LeaseTable {
    /// How many leases there are.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.len()
    }

    /// The number of leases, by their holders.
    pub(crate) fn tally(&self) -> &ShareTally {
        &self.tally
    }

    /// The number of waiting requests, by their senders.
    pub(crate) fn waiting_tally(&self) -> &ShareTally {
        &self.waiting
    }

    /// Returns whether any global owns a lease or waits for one, which is rarely so.
    pub(crate) fn concerns_globals(&self) -> bool {
        !self.by_xid.is_empty()
    }

    /// Returns when the next lease or wait ends.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let frees = self.frees.first().map(|&(at, _)| at);
        frees.into_iter().chain(self.deadlines.first().map(|&(at, _)| at)).min()
    }

    pub(super) fn acquisition(&self, token: LockToken) -> Option<Acquisition> {
        self.by_token.get(&token).copied()
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<&LeaseRecord> {
        self.leases.get(&id)
    }

    pub(super) fn turn(&self, id: TurnId) -> Option<&Turn> {
        self.turns.get(&id)
    }

    /// The requests that came after one, in the order in which they came.
    pub(super) fn turns_after(&self, id: TurnId) -> impl Iterator<Item = (TurnId, &Turn)> {
        let behind = (Bound::Excluded(id), Bound::Unbounded);
        self.turns.range(behind).map(|(&id, turn)| (id, turn))
    }

    pub(super) fn awaited(&self, waiting: Correlation) -> Option<TurnId> {
        self.by_correlation.get(&waiting).copied()
    }

    /// The lease that was the first to have freed its place.
    pub(super) fn first_freed(&self, now: Timestamp) -> Option<LeaseId> {
        self.frees.first().filter(|&&(at, _)| at <= now).map(|&(_, id)| id)
    }

    /// The request whose time was the first to be up.
    pub(super) fn first_expired(&self, now: Timestamp) -> Option<TurnId> {
        self.deadlines.first().filter(|&&(at, _)| at <= now).map(|&(_, id)| id)
    }

    pub(super) fn of_global(&self, xid: Xid) -> impl Iterator<Item = Acquisition> + '_ {
        let first = (xid, Acquisition::Held(LeaseId(0)));
        self.by_xid.range(first..).take_while(move |(of, _)| *of == xid).map(|&(_, it)| it)
    }

    /// Returns whether the global owns a lease or waits for one.
    pub(crate) fn is_of_global(&self, xid: Xid) -> bool {
        self.of_global(xid).next().is_some()
    }

    /// Returns whether a lock is held or waited for.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.locks.contains_key(name)
    }

    /// The leases of a lock.
    pub(super) fn held<'l>(&'l self, name: &str) -> impl Iterator<Item = &'l LeaseRecord> {
        let ids = self.locks.get(name).into_iter().flat_map(|lock| &lock.held);
        ids.filter_map(|id| self.leases.get(id))
    }

    /// The requests that wait for a lock, next first: before all others those of globals that hold
    /// some of it, which most of the others wait for anyway.
    pub(super) fn queue<'l>(&'l self, name: &str) -> impl Iterator<Item = (TurnId, &'l Turn)> {
        let first = self.turns_of_holders(name);
        let others = self.locks.get(name).into_iter().flat_map(|lock| lock.queue.iter().copied());
        let others = others.filter({
            let first = first.clone();
            move |id| !first.contains(id)
        });
        let ids = first.into_iter().chain(others);
        ids.filter_map(|id| self.turns.get(&id).map(|turn| (id, turn)))
    }

    /// Returns the queue without a look at the holders of the lock, which may be many.
    pub(super) fn queue_by_arrival<'l>(&'l self, name: &str) -> impl Iterator<Item = &'l Turn> {
        let ids = self.locks.get(name).into_iter().flat_map(|lock| lock.queue.iter());
        ids.filter_map(|id| self.turns.get(id))
    }

    /// Returns what else the globals that hold some of a lock want of it, which is rarely anything.
    fn turns_of_holders(&self, name: &str) -> BTreeSet<TurnId> {
        if !self.concerns_globals() {
            return BTreeSet::new();
        }
        let holders = self.held(name).filter_map(|lease| lease.xid);
        holders.flat_map(|xid| self.turns_of(xid, name)).collect()
    }

    /// Returns the turns of a global in the queue of a lock.
    pub(super) fn turns_of<'l>(
        &'l self,
        xid: Xid,
        name: &'l str,
    ) -> impl Iterator<Item = TurnId> + 'l {
        let acquisitions = self.by_xid.range((xid, Acquisition::Waits(TurnId(0)))..);
        let own = acquisitions.take_while(move |(of, _)| *of == xid);
        let turns = own.filter_map(|(_, acquisition)| match acquisition {
            Acquisition::Waits(id) => Some(*id),
            Acquisition::Held(_) => None,
        });
        turns.filter(|id| self.turns.get(id).is_some_and(|it| *it.wanted.name == *name))
    }

    /// The request whose turn is next, and what it asks for.
    pub(super) fn next_turn(&self, name: &str) -> Option<(TurnId, LockShare, Option<Xid>)> {
        let (id, turn) = self.queue(name).next()?;
        Some((id, turn.wanted.share, turn.wanted.xid))
    }

    /// Returns a holder of the lock that may rely on it.
    pub(crate) fn holder(&self, now: Timestamp, name: &str) -> Option<LockHeld> {
        self.held(name).find(|lease| lease.is_held(now)).map(LeaseRecord::held_by)
    }

    /// Returns whether there is room beside the leases that are there. Leases of the same global
    /// are not in the way.
    pub(super) fn has_room(&self, name: &str, share: LockShare, xid: Option<Xid>) -> bool {
        let own = |lease: &LeaseRecord| xid.is_some() && lease.xid == xid;
        let mut others = self.held(name).filter(|lease| !own(lease));
        let LockShare::Part { of } = share else { return others.next().is_none() };
        // A global that holds all of the lock may take parts beside that.
        let covered = self.held(name).any(|it| own(it) && it.share == LockShare::All);
        let parts = self.held(name).count() < usize::try_from(of).unwrap_or(usize::MAX);
        covered || (parts && others.all(|lease| lease.share != LockShare::All))
    }

    /// Returns the number of parts that the holders agree on, if it is another number.
    pub(super) fn other_parts(&self, name: &str, share: LockShare) -> Option<u32> {
        let LockShare::Part { of } = share else { return None };
        let mut parts = self.held(name).filter_map(|lease| match lease.share {
            LockShare::Part { of } => Some(of),
            LockShare::All => None,
        });
        parts.find(|other| *other != of)
    }

    // ---- changes ----

    pub(super) fn add(&mut self, lease: LeaseRecord, client: ClientId) {
        self.tally.enter(client, &lease.application, 1);
        if client != ClientId::default() {
            self.clients.insert(lease.id, client);
        }
        let (id, acquisition) = (lease.id, Acquisition::Held(lease.id));
        self.locks.entry(lease.name.clone()).or_default().held.insert(id);
        self.by_token.insert(lease.token, acquisition);
        self.by_xid.extend(lease.xid.map(|xid| (xid, acquisition)));
        self.frees.extend(lease.frees_at().map(|at| (at, id)));
        self.leases.insert(id, lease);
    }

    pub(super) fn change<T>(
        &mut self,
        id: LeaseId,
        change: impl FnOnce(&mut LeaseRecord) -> T,
    ) -> Option<T> {
        let lease = self.leases.get_mut(&id)?;
        if let Some(at) = lease.frees_at() {
            self.frees.remove(&(at, id));
        }
        let result = change(lease);
        self.frees.extend(lease.frees_at().map(|at| (at, id)));
        Some(result)
    }

    /// Gives each lease its whole length again.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        let mut ids: Vec<LeaseId> = self.leases.keys().copied().collect();
        // The order is that of ids, since that of a hash map must not show (PURE).
        ids.sort_unstable();
        for id in ids {
            self.change(id, |lease| lease.resume(now));
        }
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<LeaseRecord> {
        let lease = self.leases.remove(&id)?;
        let client = self.clients.remove(&id).unwrap_or_default();
        self.tally.leave(client, &lease.application, 1);
        self.by_token.remove(&lease.token);
        if let Some(xid) = lease.xid {
            self.by_xid.remove(&(xid, Acquisition::Held(id)));
        }
        if let Some(at) = lease.frees_at() {
            self.frees.remove(&(at, id));
        }
        self.leave(&lease.name, |lock| lock.held.remove(&id));
        Some(lease)
    }

    pub(super) fn enqueue(&mut self, turn: Turn) -> TurnId {
        self.waiting.enter(turn.asker.client, &turn.asker.application, 1);
        self.last_turn.0 += 1;
        let (id, acquisition) = (self.last_turn, Acquisition::Waits(self.last_turn));
        self.locks.entry(turn.wanted.name.clone()).or_default().queue.insert(id);
        self.by_token.insert(turn.wanted.token, acquisition);
        self.by_xid.extend(turn.wanted.xid.map(|xid| (xid, acquisition)));
        self.deadlines.insert((turn.deadline, id));
        self.by_correlation.insert(turn.reply_to, id);
        self.turns.insert(id, turn);
        id
    }

    /// Lets a later request of the same acquisition take the place of the one that waits, and
    /// returns the earlier one, which is to be answered.
    pub(super) fn wait_on(
        &mut self,
        id: TurnId,
        now: Timestamp,
        reply_to: Correlation,
        deadline: Timestamp,
    ) -> Option<Correlation> {
        let turn = self.turns.get_mut(&id)?;
        self.deadlines.remove(&(turn.deadline, id));
        self.by_correlation.remove(&turn.reply_to);
        let earlier = std::mem::replace(&mut turn.reply_to, reply_to);
        (turn.since, turn.deadline) = (now, deadline);
        self.deadlines.insert((deadline, id));
        self.by_correlation.insert(reply_to, id);
        Some(earlier)
    }

    pub(crate) fn dequeue(&mut self, id: TurnId) -> Option<Turn> {
        let turn = self.turns.remove(&id)?;
        self.waiting.leave(turn.asker.client, &turn.asker.application, 1);
        self.by_token.remove(&turn.wanted.token);
        if let Some(xid) = turn.wanted.xid {
            self.by_xid.remove(&(xid, Acquisition::Waits(id)));
        }
        self.deadlines.remove(&(turn.deadline, id));
        self.by_correlation.remove(&turn.reply_to);
        self.leave(&turn.wanted.name, |lock| lock.queue.remove(&id));
        Some(turn)
    }

    fn leave(&mut self, name: &Arc<str>, leave: impl FnOnce(&mut NamedLock) -> bool) {
        let Entry::Occupied(mut lock) = self.locks.entry(Arc::clone(name)) else { return };
        leave(lock.get_mut());
        // BOUNDED: a name that is neither held nor waited for takes no room.
        if *lock.get() == NamedLock::default() {
            lock.remove();
        }
    }

    /// Returns whether everything derived from leases and requests, derived again, agrees.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut rebuilt = Self::default();
        for (id, lease) in &self.leases {
            rebuilt.add(lease.clone(), self.clients.get(id).copied().unwrap_or_default());
        }
        for (id, turn) in &self.turns {
            rebuilt.last_turn = TurnId(id.0 - 1);
            rebuilt.enqueue(turn.clone());
        }
        let names = rebuilt.locks == self.locks && rebuilt.by_token == self.by_token;
        let times = rebuilt.frees == self.frees && rebuilt.deadlines == self.deadlines;
        let shares = rebuilt.clients == self.clients
            && rebuilt.tally == self.tally
            && rebuilt.waiting == self.waiting;
        names
            && times
            && shares
            && rebuilt.by_xid == self.by_xid
            && rebuilt.by_correlation == self.by_correlation
    }
}
