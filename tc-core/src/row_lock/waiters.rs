//! The requests that are answered later: waiting for locks, or for a global to finish.
//!
//! They live in memory alone; a server that takes the lead has none, and the clients ask again.
//! The queues of the single rows are in `lock`; here is the request as a whole.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::table::{Claim, LockId, Place, Purpose, Rank, WaitId};
use crate::collections::interner::Name;
use crate::contract::{Asker, BranchId, Correlation, Holding, LockMode, Mode, Timestamp, Xid};
use crate::shares::Tally;

/// A request that waits for locks.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) reply_to: Correlation,
    pub(crate) xid: Option<Xid>,
    /// Whose the places are that it takes in the rows' queues.
    pub(crate) owner: Asker,
    pub(crate) want: Want,
    pub(crate) rows: WantedRows,
    /// Which of the rows it could not have when it was last looked for one.
    pub(crate) blocked_at: usize,
    pub(crate) holding: Holding,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Timestamp,
}

/// What is done when the rows are there.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// The branch takes them.
    Join(Xid, Joining),
    /// The requester is told; outside a global there is no XID.
    Check(Option<Xid>),
}

impl Want {
    /// The global that asks.
    pub(crate) fn xid(&self) -> Option<Xid> {
        match self {
            Self::Join(xid, _) => Some(*xid),
            Self::Check(xid) => *xid,
        }
    }
}

/// A branch to be made, or to be given more rows.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) id: BranchId,
    pub(crate) resource: Name,
    pub(crate) mode: Mode,
    pub(crate) application_data: Box<[u8]>,
    pub(crate) registered_by: Option<Name>,
}

pub(crate) type WantedRows = SmallVec<[WantedRow; 2]>;

/// A row of a request and the request's rank in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRow {
    pub(crate) lock: LockId,
    pub(crate) mode: LockMode,
    pub(crate) rank: Rank,
}

impl WantedRow {
    pub(crate) fn place(self, id: WaitId) -> Place {
        Place { rank: self.rank, id }
    }
}

impl Waiter {
    pub(crate) fn claim(&self, mode: LockMode) -> Claim {
        let purpose = if self.takes() { Purpose::Take } else { Purpose::Check };
        Claim { xid: self.xid, mode, purpose }
    }

    pub(crate) fn takes(&self) -> bool {
        matches!(self.want, Want::Join(..))
    }

    pub(crate) fn joins(&self, xid: Xid, branch: BranchId) -> bool {
        matches!(&self.want, Want::Join(of, joining) if *of == xid && joining.id == branch)
    }
}

/// All requests that are answered later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    last: WaitId,
    waiters: BTreeMap<WaitId, Waiter>,
    of_globals: BTreeSet<(Xid, WaitId)>,
    deadlines: BTreeSet<(Timestamp, WaitId)>,
    ends: BTreeMap<Xid, Vec<Correlation>>,
    ends_len: usize,
    /// How many requests wait for the votes of a global.
    votes_len: usize,
    by_correlation: BTreeMap<Correlation, Awaited>,
    /// Who asks, of what each waits for.
    askers: BTreeMap<Correlation, Asker>,
    tally: Tally,
    /// The rows waited for, by whose their places are.
    rows: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Locks(WaitId),
    End(Xid),
    Votes(Xid),
}

impl Waits {
    /// How many requests wait: for locks, for votes and for globals to finish.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len() + self.votes_len + self.ends_len
    }

    /// How many requests wait for locks.
    pub(crate) fn for_locks(&self) -> usize {
        self.waiters.len()
    }

    /// How many wait, by who asks.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// For how many rows they wait, by whose their places are.
    pub(crate) fn rows(&self) -> &Tally {
        &self.rows
    }

    fn enter(&mut self, correlation: Correlation, asker: &Asker) {
        if *asker != Asker::default() {
            self.tally.enter(asker.client, &asker.application, 1);
            self.askers.insert(correlation, asker.clone());
        }
    }

    fn leave(&mut self, correlation: Correlation) {
        if let Some(asker) = self.askers.remove(&correlation) {
            self.tally.leave(asker.client, &asker.application, 1);
        }
    }

    /// What each has, made anew from those who wait, agrees.
    pub(crate) fn shares_are_consistent(&self) -> bool {
        let (mut tally, mut rows) = (Tally::default(), Tally::default());
        for asker in self.askers.values() {
            tally.enter(asker.client, &asker.application, 1);
        }
        for Waiter { owner, rows: wanted, .. } in self.waiters.values() {
            rows.enter(owner.client, &owner.application, wanted.len());
        }
        let wait = self.askers.keys().all(|asked| self.by_correlation.contains_key(asked));
        wait && tally == self.tally && rows == self.rows
    }

    pub(crate) fn next_id(&mut self) -> WaitId {
        self.last.0 += 1;
        self.last
    }

    pub(crate) fn add(&mut self, id: WaitId, waiter: Waiter, asker: &Asker) {
        self.enter(waiter.reply_to, asker);
        let Asker { client, application } = &waiter.owner;
        self.rows.enter(*client, application, waiter.rows.len());
        if let Some(xid) = waiter.xid {
            self.of_globals.insert((xid, id));
        }
        self.deadlines.insert((waiter.deadline, id));
        self.by_correlation.insert(waiter.reply_to, Awaited::Locks(id));
        self.waiters.insert(id, waiter);
    }

    pub(crate) fn remove(&mut self, id: WaitId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.leave(waiter.reply_to);
        let Asker { client, application } = &waiter.owner;
        self.rows.leave(*client, application, waiter.rows.len());
        if let Some(xid) = waiter.xid {
            self.of_globals.remove(&(xid, id));
        }
        self.deadlines.remove(&(waiter.deadline, id));
        if self.awaited(waiter.reply_to) == Some(Awaited::Locks(id)) {
            self.by_correlation.remove(&waiter.reply_to);
        }
        Some(waiter)
    }

    pub(crate) fn get(&self, id: WaitId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: WaitId) -> Option<&mut Waiter> {
        self.waiters.get_mut(&id)
    }

    /// Whether no request waits for locks, which is nearly always so.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn of_global(&self, xid: Xid) -> impl Iterator<Item = WaitId> + '_ {
        self.of_globals.range((xid, WaitId(0))..=(xid, WaitId(u64::MAX))).map(|&(_, id)| id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WaitId, &Waiter)> {
        self.waiters.iter().map(|(&id, waiter)| (id, waiter))
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The waiter whose deadline is the first to have passed.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<WaitId> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, id)| id)
    }

    pub(crate) fn awaited(&self, correlation: Correlation) -> Option<Awaited> {
        self.by_correlation.get(&correlation).copied()
    }

    /// Keeps the place of a request that is answered when the global is finished.
    pub(crate) fn await_end(&mut self, xid: Xid, correlation: Correlation, asker: &Asker) {
        self.enter(correlation, asker);
        self.ends.entry(xid).or_default().push(correlation);
        self.ends_len += 1;
        self.by_correlation.insert(correlation, Awaited::End(xid));
    }

    pub(crate) fn forget_end(&mut self, xid: Xid, correlation: Correlation) {
        if let Some(waiting) = self.ends.get_mut(&xid) {
            self.ends_len -= waiting.len();
            waiting.retain(|&known| known != correlation);
            self.ends_len += waiting.len();
            if waiting.is_empty() {
                self.ends.remove(&xid);
            }
        }
        self.by_correlation.remove(&correlation);
        self.leave(correlation);
    }

    /// Counts a request that is answered when the votes are in.
    pub(crate) fn await_votes(&mut self, xid: Xid, correlation: Correlation, asker: &Asker) {
        self.enter(correlation, asker);
        self.votes_len += 1;
        self.by_correlation.insert(correlation, Awaited::Votes(xid));
    }

    pub(crate) fn forget_votes(&mut self, correlation: Correlation) {
        self.votes_len -= 1;
        self.leave(correlation);
        if matches!(self.awaited(correlation), Some(Awaited::Votes(_))) {
            self.by_correlation.remove(&correlation);
        }
    }

    /// Takes out the requests that wait for the global to finish.
    pub(crate) fn take_ends(&mut self, xid: Xid) -> Vec<Correlation> {
        let waiting = self.ends.remove(&xid).unwrap_or_default();
        self.ends_len -= waiting.len();
        for correlation in &waiting {
            self.leave(*correlation);
            if self.awaited(*correlation) == Some(Awaited::End(xid)) {
                self.by_correlation.remove(correlation);
            }
        }
        waiting
    }
}
