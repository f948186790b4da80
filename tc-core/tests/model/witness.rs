//! Records what the world outside has been told and has done, and checks what it must never see.
//!
//! It knows nothing of the lock table: a row is taken when a registration is acknowledged, and free
//! when the commit is durable or the branch has put its rows back.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{
    BranchId, BranchState, Change, Decision, Effect, FencingToken, GlobalRecord, GlobalState,
    GlobalStatus, LockMode, PhaseTwoCall, Record, RecordKey, Rejection, Reply, Xid,
};

use crate::request::BranchPlan;
use crate::support::Store;
use crate::system::{Call, System};

/// A row by its key; the model has one table.
type Row = Box<[u8]>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    /// The messages that left the coordinator.
    decided: BTreeMap<Xid, Decision>,
    /// The durable registrations, and whether their tokens have been handed out.
    granted: BTreeMap<(Xid, BranchId), Grant>,
    /// The globals that may change each row, and how.
    owners: BTreeMap<Row, BTreeMap<Xid, LockMode>>,
    tokens: BTreeMap<Row, FencingToken>,
    carried_out: BTreeMap<(Xid, BranchId), Decision>,
    /// The globals that are decided by the local commit of their last branch, as its process knows.
    deciding: BTreeSet<Xid>,
    /// Those of them that a crash may take away.
    may_be_lost: BTreeSet<Xid>,
    /// The first thing seen that must not be.
    pub(crate) broken: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct Grant {
    token: FencingToken,
    rows: Vec<(Row, LockMode)>,
    is_acknowledged: bool,
}

impl Witness {
    pub(crate) fn blame(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }

    /// Sees something leave a coordinator.
    pub(crate) fn see(&mut self, effect: &Effect) {
        match effect {
            Effect::Reply { reply: Reply::Registered { token, decides, .. }, .. } => {
                self.see_grant(*token, *decides);
            }
            Effect::PhaseTwo(PhaseTwoCall { xid, decision, .. }) => {
                self.see_decision(*xid, *decision)
            }
            Effect::Reply {
                reply: Reply::Rejected(Rejection::AlreadyDecided { xid, status }),
                ..
            } => {
                if let Some(decision) = decision_of(*status) {
                    self.see_decision(*xid, decision);
                }
            }
            Effect::Reply { .. } | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => {}
        }
    }

    /// Sees what becomes durable, before it is applied.
    pub(crate) fn see_changes(&mut self, store: &Store, changes: &[Change]) {
        for change in changes {
            if let Some((xid, decision)) = decision_stored(change) {
                let before = store.records.get(&RecordKey::Global(xid)).and_then(stored_decision);
                if before.is_some_and(|before| before != decision) {
                    self.blame("DECIDED-ONCE: a stored decision changes");
                }
                if decision == Decision::Commit {
                    self.owners.values_mut().for_each(|owners| _ = owners.remove(&xid));
                }
            }
            if let Change::Put(Record::Branch(branch)) = change {
                let rows = branch.rows.iter().map(|row| (row.key.clone(), row.mode)).collect();
                let grant = Grant { token: branch.token, rows, is_acknowledged: false };
                let known = self.granted.entry((branch.xid, branch.id)).or_insert(grant.clone());
                if known.token != grant.token {
                    *known = grant;
                }
            }
        }
    }

    /// Sees a branch carry phase two out.
    pub(crate) fn see_carried_out(&mut self, (xid, branch, decision): Call) {
        self.carried_out.insert((xid, branch), decision);
        let of_global = self.carried_out.range((xid, BranchId(0))..=(xid, BranchId(u64::MAX)));
        if of_global.into_iter().any(|(_, other)| *other != decision) {
            self.blame("a global is carried out in part only");
        }
        let rows = self.granted.get(&(xid, branch)).map(|grant| grant.rows.clone());
        for (row, _) in rows.unwrap_or_default() {
            self.owners.entry(row).or_default().remove(&xid);
        }
    }

    /// Sees a token, which names its grant. A grant that was told before is not made again.
    fn see_grant(&mut self, token: FencingToken, decides: bool) {
        let grant = self.granted.iter_mut().find(|(_, grant)| grant.token == token);
        let Some((&(xid, branch), grant)) = grant else {
            return self.blame("DURABLE-FIRST: a registration is acknowledged that is not stored");
        };
        if decides {
            self.deciding.insert(xid);
        }
        if std::mem::replace(&mut grant.is_acknowledged, true) {
            return;
        }
        // Told late, by a leader that is deposed: the rows have gone on.
        let is_over = self.decided.get(&xid) == Some(&Decision::Commit)
            || self.carried_out.contains_key(&(xid, branch));
        for (row, mode) in if is_over { Vec::new() } else { grant.rows.clone() } {
            self.take(row, xid, mode, token);
        }
    }

    /// Sees the answer to a branch that is not stored yet. It has the rows locked in its database.
    pub(crate) fn see_early_grant(&mut self, xid: Xid, branch: &BranchPlan) {
        for row in branch.row_locks() {
            let mut others = self.owners.get(&row.key).into_iter().flat_map(BTreeMap::keys);
            if others.any(|other| *other != xid) {
                self.blame("a branch commits to a row of an undecided global");
            }
        }
        self.deciding.insert(xid);
        self.may_be_lost.insert(xid);
    }

    /// Returns whether the last branch of a global may decide it.
    pub(crate) fn decides(&self, xid: Xid) -> bool {
        self.deciding.contains(&xid)
    }

    /// Sees the local commit that decides a global, as its caller does.
    pub(crate) fn see_local_commit(&mut self, xid: Xid) {
        self.see_decision(xid, Decision::Commit);
    }

    fn take(&mut self, row: Row, xid: Xid, mode: LockMode, token: FencingToken) {
        let owners = self.owners.entry(row.clone()).or_default();
        owners.insert(xid, mode);
        let is_shared = mode != LockMode::Exclusive && owners.values().all(|it| *it == mode);
        if owners.len() > 1 && !is_shared {
            self.blame("a row is locked for two globals");
        }
        if self.tokens.insert(row, token) >= Some(token) {
            self.blame("the token of a row does not grow");
        }
    }

    fn see_decision(&mut self, xid: Xid, decision: Decision) {
        if *self.decided.entry(xid).or_insert(decision) != decision {
            self.blame("DECIDED-ONCE: two answers");
        }
    }
}

/// Decisions that a client was told of, and registrations that were acknowledged, are in the store.
pub(crate) fn acknowledged_is_stored(system: &System) -> bool {
    let records = &system.store.records;
    let decision = |xid| records.get(&RecordKey::Global(xid)).and_then(stored_decision);
    let is_finished = |xid| match records.get(&RecordKey::Global(xid)) {
        Some(Record::Global(global)) => global.finished_at().is_some(),
        Some(Record::Branch(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_))
        | None => false,
    };
    let Witness { decided, granted, may_be_lost, .. } = &system.witness;
    let registered: BTreeSet<_> =
        granted.iter().filter(|(_, grant)| grant.is_acknowledged).map(|(&key, _)| key).collect();
    // A local commit decides before the coordinator hears of it.
    let is_followed = |xid| {
        let branches =
            (RecordKey::Branch(xid, BranchId(0)))..=RecordKey::Branch(xid, BranchId(u64::MAX));
        records.range(branches).any(|(_, record)| {
            matches!(record, Record::Branch(branch) if branch.state == BranchState::Deciding)
        })
    };
    let is_lost =
        |xid| may_be_lost.contains(&xid) && !records.contains_key(&RecordKey::Global(xid));
    let is_certain = |xid, told| {
        decision(xid) == Some(told)
            || told == Decision::Commit
                && decision(xid).is_none()
                && (is_followed(xid) || is_lost(xid))
    };
    decided.iter().all(|(&xid, &told)| is_certain(xid, told))
        && registered.into_iter().all(|(xid, branch)| {
            records.contains_key(&RecordKey::Branch(xid, branch)) || is_finished(xid)
        })
}

/// The decision that a change stores.
pub(crate) fn decision_stored(change: &Change) -> Option<(Xid, Decision)> {
    match change {
        Change::Put(record @ Record::Global(GlobalRecord { xid, .. })) => {
            stored_decision(record).map(|decision| (*xid, decision))
        }
        Change::Put(
            Record::Branch(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_),
        )
        | Change::Delete(_) => None,
    }
}

fn stored_decision(record: &Record) -> Option<Decision> {
    match record {
        Record::Global(GlobalRecord { state: GlobalState::Active, .. })
        | Record::Branch(_)
        | Record::Saga(_)
        | Record::Lease(_)
        | Record::Closure(_) => None,
        Record::Global(GlobalRecord { state, .. }) => match state {
            GlobalState::Committing | GlobalState::Committed(_) => Some(Decision::Commit),
            GlobalState::Active | GlobalState::RollingBack(_) | GlobalState::RolledBack(..) => {
                Some(Decision::RollBack)
            }
        },
    }
}

fn decision_of(status: GlobalStatus) -> Option<Decision> {
    match status {
        GlobalStatus::Unknown | GlobalStatus::Active => None,
        GlobalStatus::Committing | GlobalStatus::Committed => Some(Decision::Commit),
        GlobalStatus::RollingBack(_)
        | GlobalStatus::RolledBack(_)
        | GlobalStatus::NeedsOperator(_) => Some(Decision::RollBack),
    }
}
