//! All sagas, with what must always agree with them: keys, labels, timeouts, the order of
//! forgetting, and how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::collections::xid_map::XidMap;
use crate::contract::{ClientId, Counted, Counts, Limits, SagaRecord, Timestamp, Xid};
use crate::global::label_index::LabelIndex;
use crate::operator::saga::SagaView;
use crate::restart::Restart;
use crate::shares::ShareTally;

/// Unfinished and remembered sagas. Changes go through [`SagaTable::change`], so that exactly those
/// that can time out are among the timeouts (DEADLINE).
#[derive(Clone, Debug, Default)]
pub(crate) struct SagaTable {
    by_xid: XidMap<SagaRecord>,
    by_key: BTreeMap<Arc<str>, Xid>,
    timeouts: BTreeSet<(Timestamp, Xid)>,
    ended: BTreeSet<(Timestamp, Xid)>,
    labels: LabelIndex,
    counts: Counts,
    restart: Restart,
    /// Over which connections they were started, as far as that is known.
    clients: BTreeMap<Xid, ClientId>,
    open: ShareTally,
}

impl SagaTable {
    pub(crate) fn unfinished(&self) -> usize {
        self.by_xid.len() - self.ended.len()
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { remembered: self.ended.len(), ..self.counts }
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&SagaRecord> {
        self.by_xid.get(xid)
    }

    pub(crate) fn of_key(&self, key: &str) -> Option<&SagaRecord> {
        self.by_key.get(key).and_then(|&xid| self.by_xid.get(xid))
    }

    /// Returns a saga with the timeouts that count.
    pub(crate) fn view(&self, xid: Xid) -> Option<SagaView> {
        let saga = self.get(xid)?;
        let timeouts = saga.timeouts(self.restart).filter(|_| saga.can_turn_back()).collect();
        Some(SagaView { record: saga.clone(), timeouts })
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &SagaRecord> {
        self.by_xid.iter()
    }

    /// Newest first, from below `before`.
    pub(crate) fn newest_before(&self, before: Xid) -> impl Iterator<Item = &SagaRecord> {
        self.by_xid.below(before)
    }

    /// By which labels sagas are found.
    pub(crate) fn labels(&self) -> &LabelIndex {
        &self.labels
    }

    /// Returns the number of unfinished sagas, by owner.
    pub(crate) fn open(&self) -> &ShareTally {
        &self.open
    }

    /// As [`insert`](Self::insert), of a saga that is started over this connection.
    pub(crate) fn insert_of(&mut self, saga: SagaRecord, client: ClientId) {
        if client != ClientId::default() {
            self.clients.insert(saga.xid, client);
        }
        self.insert(saga);
    }

    pub(crate) fn insert(&mut self, saga: SagaRecord) {
        self.by_key.insert(saga.key.clone(), saga.xid);
        self.labels.insert(&saga.labels, saga.xid);
        self.enter(&saga);
        self.by_xid.insert(saga.xid, saga);
    }

    /// Oldest XIDs first, from `first` on.
    pub(crate) fn oldest_from(&self, first: Xid) -> impl Iterator<Item = &SagaRecord> {
        self.by_xid.from(first)
    }

    /// Changes a saga; `None` if it is not there.
    pub(crate) fn change<T>(
        &mut self,
        xid: Xid,
        change: impl FnOnce(&mut SagaRecord) -> T,
    ) -> Option<T> {
        let mut saga = self.by_xid.remove(xid)?;
        self.leave(&saga);
        let result = change(&mut saga);
        self.enter(&saga);
        self.by_xid.insert(xid, *saga);
        Some(result)
    }

    pub(crate) fn remove(&mut self, xid: Xid) {
        if let Some(saga) = self.by_xid.remove(xid) {
            self.leave(&saga);
            self.by_key.remove(&saga.key);
            self.labels.remove(&saga.labels, xid);
            self.clients.remove(&xid);
        }
    }

    /// Gives each saga, child and step what the restart leaves of its time.
    pub(crate) fn resume(&mut self, restart: Restart) {
        // The sets are made again from nothing: their entries stand under times that `resume`
        // moves.
        (self.restart, self.timeouts, self.ended) = (restart, BTreeSet::new(), BTreeSet::new());
        let xids: Vec<Xid> = self.by_xid.iter().map(|saga| saga.xid).collect();
        for xid in xids {
            let Some(saga) = self.by_xid.get_mut(xid) else { continue };
            saga.resume(restart);
            self.timeouts.extend(saga.next_timeout(restart).map(|(at, _)| (at, xid)));
            self.ended.extend(saga.ended_at().map(|at| (at, xid)));
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<(Timestamp, Xid)> {
        self.timeouts.first().copied()
    }

    /// When the saga that ended the longest ago is to be forgotten.
    pub(crate) fn forgetting_due(&self, limits: &Limits) -> Option<Timestamp> {
        let (at, _) = self.first_ended()?;
        // A start with a lowered limit finds more than that.
        let is_crowded = self.ended() > limits.history_max;
        Some(if is_crowded { at } else { self.restart.kept_until(at, limits.retention_ms) })
    }

    /// The saga that ended the longest ago.
    pub(crate) fn first_ended(&self) -> Option<(Timestamp, Xid)> {
        self.ended.first().copied()
    }

    /// Returns the saga that ended the longest ago, this one aside.
    pub(super) fn first_ended_but(&self, xid: Xid) -> Option<Xid> {
        self.ended.iter().map(|&(_, ended)| ended).find(|ended| *ended != xid)
    }

    /// Returns whether everything derived from the sagas, derived again, agrees.
    pub(crate) fn is_consistent(&self) -> bool {
        let clients = self.clients.clone();
        let mut rebuilt = Self { restart: self.restart, clients, ..Self::default() };
        self.iter().for_each(|saga| rebuilt.insert(saga.clone()));
        let agree = rebuilt.by_key == self.by_key && rebuilt.timeouts == self.timeouts;
        let agree = agree && rebuilt.labels == self.labels;
        agree
            && rebuilt.ended == self.ended
            && rebuilt.counts == self.counts
            && rebuilt.open == self.open
    }

    fn enter(&mut self, saga: &SagaRecord) {
        self.counts.enter(counted(saga));
        self.timeouts.extend(saga.next_timeout(self.restart).map(|(at, _)| (at, saga.xid)));
        self.ended.extend(saga.ended_at().map(|at| (at, saga.xid)));
        let client = self.client_of(saga.xid);
        self.open.enter(client, &saga.application, usize::from(saga.ended_at().is_none()));
    }

    fn client_of(&self, xid: Xid) -> ClientId {
        self.clients.get(&xid).copied().unwrap_or_default()
    }

    fn leave(&mut self, saga: &SagaRecord) {
        self.counts.leave(counted(saga));
        let client = self.client_of(saga.xid);
        self.open.leave(client, &saga.application, usize::from(saga.ended_at().is_none()));
        if let Some((at, _)) = saga.next_timeout(self.restart) {
            self.timeouts.remove(&(at, saga.xid));
        }
        if let Some(at) = saga.ended_at() {
            self.ended.remove(&(at, saga.xid));
        }
    }
}

/// Returns what a saga adds to the counts. Its calls are owed from its beginning.
fn counted(saga: &SagaRecord) -> Counted {
    Counted { status: saga.global_status().kind(), pending: saga.owed_calls() }
}
