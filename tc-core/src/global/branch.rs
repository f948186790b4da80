//! A branch of an unfinished global, as held in memory.
//!
//! Leaner than its record: rows are names of lock slots, and what few branches have is boxed.
//! `record` gives the stored form.

use std::sync::Arc;

use super::branch_rows::{BranchRows, GivenUpRows};
use crate::collections::interner::BranchSite;
use crate::contract::{
    BranchId, BranchRecord, BranchState, Event, EventKind, FencingToken, Mode, RefusedRows,
    RequestTrace, Resolution, RowLock, Timestamp, Xid, noted_of_branch,
};
use crate::row_lock::table::{LockId, LockTable};

#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) id: BranchId,
    pub(crate) sequence: u32,
    pub(crate) mode: Mode,
    pub(crate) stage: BranchStage,
    /// Whether it was registered before its local transaction began, which may register it again.
    pub(crate) is_ahead: bool,
    pub(crate) site: Arc<BranchSite>,
    pub(crate) token: FencingToken,
    pub(crate) registered_at: Timestamp,
    /// When phase one was reported done; 0 if it was not.
    pub(crate) phase_one_at: Timestamp,
    pub(crate) rows: BranchRows,
    pub(crate) extras: Option<Box<BranchExtras>>,
}

/// The state of a branch. The reason of a refusal is in its [`BranchExtras`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchStage {
    Registered,
    /// Its local commit decides the global. Once that is decided, as registered.
    Deciding,
    PhaseOneDone,
    Refused,
    Resolved(Resolution),
    Finished,
}

/// Parts that few branches have: data of their own, many rows, waits, failures of phase two, a
/// trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct BranchExtras {
    pub(crate) application_data: Box<[u8]>,
    pub(crate) attempts: u32,
    pub(crate) last_failure: Option<(Timestamp, Arc<str>)>,
    pub(crate) refusal: Option<(Arc<str>, Arc<RefusedRows>)>,
    /// Shared with its records.
    pub(crate) events: Arc<[Event]>,
    pub(crate) trace: Option<RequestTrace>,
    /// The rows, where they are many.
    pub(crate) rows: Vec<LockId>,
}

/// Branches that are rolled back one after the other, the last registered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RollbackOrder<'a> {
    /// Branches of one resource: they may have written the same row.
    Resource(&'a str),
    /// Branches of mode Saga on any resource: every later action may have built on what a
    /// compensation undoes.
    Saga,
}

impl Branch {
    pub(crate) fn rollback_order(&self) -> RollbackOrder<'_> {
        match self.mode {
            Mode::Saga => RollbackOrder::Saga,
            Mode::At | Mode::Tcc | Mode::Xa | Mode::TwoPhase => {
                RollbackOrder::Resource(&self.site.resource)
            }
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.stage == BranchStage::Finished
    }

    /// When it finished; 0 if it did not.
    pub(crate) fn finished_at(&self) -> Timestamp {
        self.rows.finished_at()
    }

    /// Marks it finished. The caller has taken its rows out.
    pub(crate) fn finish(&mut self, now: Timestamp) {
        self.stage = BranchStage::Finished;
        self.rows = BranchRows::finished(now);
    }

    /// The rows that it holds.
    pub(crate) fn locks(&self) -> &[LockId] {
        let many = || self.extras.as_ref().map_or(&[][..], |extras| &extras.rows);
        self.rows.few().unwrap_or_else(many)
    }

    pub(crate) fn add_lock(&mut self, lock: LockId) {
        if let Some(few) = self.rows.with(lock) {
            self.rows = few;
            return;
        }
        let few = self.rows.few().unwrap_or_default();
        self.extras.get_or_insert_default().rows.extend(few.iter().copied().chain([lock]));
        self.rows = BranchRows::Many;
    }

    pub(crate) fn take_locks(&mut self) -> GivenUpRows {
        let taken = self.locks().into();
        if let (BranchRows::Many, Some(extras)) = (self.rows, &mut self.extras) {
            extras.rows = Vec::new();
        }
        if !self.is_finished() {
            self.rows = BranchRows::None;
        }
        taken
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.attempts)
    }

    pub(crate) fn application_data(&self) -> Box<[u8]> {
        self.extras.as_ref().map(|extras| extras.application_data.clone()).unwrap_or_default()
    }

    /// The process that registered it, where that is known.
    pub(crate) fn registered_by(&self) -> Option<Arc<str>> {
        self.site.registered_by.clone()
    }

    pub(crate) fn resource(&self) -> &Arc<str> {
        &self.site.resource
    }

    pub(crate) fn resolution(&self) -> Option<Resolution> {
        match self.stage {
            BranchStage::Resolved(resolution) => Some(resolution),
            BranchStage::Registered
            | BranchStage::Deciding
            | BranchStage::PhaseOneDone
            | BranchStage::Refused
            | BranchStage::Finished => None,
        }
    }

    /// Counts a failed attempt at phase two.
    pub(crate) fn fail(&mut self, now: Timestamp, error: Arc<str>) -> &mut BranchExtras {
        let extras = self.extras.get_or_insert_default();
        extras.attempts = extras.attempts.saturating_add(1);
        extras.last_failure = Some((now, error.clone()));
        let kind = EventKind::Failed { attempt: extras.attempts };
        extras.events = noted_of_branch(&extras.events, Event { at: now, what: error, kind });
        extras
    }

    /// Adds a wait to its course.
    pub(crate) fn note(&mut self, event: Event) {
        let extras = self.extras.get_or_insert_default();
        extras.events = noted_of_branch(&extras.events, event);
    }

    /// Where its registration stands in a trace.
    pub(crate) fn trace(&self) -> Option<RequestTrace> {
        self.extras.as_ref().and_then(|extras| extras.trace)
    }

    pub(crate) fn events(&self) -> Arc<[Event]> {
        self.extras.as_ref().map(|extras| extras.events.clone()).unwrap_or_default()
    }

    fn phase_one_at(&self) -> Option<Timestamp> {
        Some(self.phase_one_at).filter(|at| at.0 > 0)
    }

    pub(crate) fn record(&self, xid: Xid, locks: &LockTable) -> BranchRecord {
        let row = |&lock: &LockId| self.row(xid, lock, locks);
        self.record_with(xid, self.locks().iter().map(row).collect())
    }

    pub(crate) fn row(&self, xid: Xid, lock: LockId, locks: &LockTable) -> RowLock {
        let (table, key) = (locks.space(lock).table.clone(), locks.key(lock).into());
        RowLock { table, key, mode: locks.mode(lock, xid, self.sequence) }
    }

    /// The record of a branch that holds these rows.
    pub(crate) fn record_with(&self, xid: Xid, rows: Vec<RowLock>) -> BranchRecord {
        BranchRecord { application_data: self.application_data(), ..self.outline(xid, rows) }
    }

    /// The same without its data.
    pub(crate) fn outline(&self, xid: Xid, rows: Vec<RowLock>) -> BranchRecord {
        BranchRecord {
            xid,
            id: self.id,
            sequence: self.sequence,
            resource: self.resource().clone(),
            mode: self.mode,
            rows,
            token: self.token,
            registered_at: self.registered_at,
            application_data: Box::default(),
            state: self.state(),
            attempts: self.attempts(),
            last_failure: self.extras.as_ref().and_then(|extras| extras.last_failure.clone()),
            registered_by: self.registered_by(),
            phase_one_at: self.phase_one_at(),
            events: self.events(),
            trace: self.trace().map(Box::new),
        }
    }

    fn state(&self) -> BranchState {
        match self.stage {
            BranchStage::Registered => BranchState::Registered,
            BranchStage::Deciding => BranchState::Deciding,
            BranchStage::PhaseOneDone => BranchState::PhaseOneDone,
            BranchStage::Refused => {
                let refusal = self.extras.as_ref().and_then(|extras| extras.refusal.clone());
                let (error, rows) = refusal.unwrap_or_else(|| (Arc::from(""), Arc::default()));
                BranchState::Refused(error, rows)
            }
            BranchStage::Resolved(resolution) => BranchState::Resolved(resolution),
            BranchStage::Finished => BranchState::Finished(self.finished_at()),
        }
    }

    /// The branch of a record, without its rows: the caller takes their locks.
    pub(crate) fn restore(site: Arc<BranchSite>, record: BranchRecord) -> Self {
        let BranchRecord { application_data, attempts, last_failure, events, trace, .. } = record;
        let trace = trace.map(|trace| *trace);
        let rows = match record.state {
            BranchState::Finished(at) => BranchRows::finished(at),
            BranchState::Registered
            | BranchState::Deciding
            | BranchState::PhaseOneDone
            | BranchState::Refused(..)
            | BranchState::Resolved(_) => BranchRows::None,
        };
        let (stage, refusal) = match record.state {
            BranchState::Registered => (BranchStage::Registered, None),
            BranchState::Deciding => (BranchStage::Deciding, None),
            BranchState::PhaseOneDone => (BranchStage::PhaseOneDone, None),
            BranchState::Refused(error, rows) => (BranchStage::Refused, Some((error, rows))),
            BranchState::Resolved(resolution) => (BranchStage::Resolved(resolution), None),
            BranchState::Finished(_) => (BranchStage::Finished, None),
        };
        let troubled = attempts > 0 || last_failure.is_some() || refusal.is_some();
        let has_data = !application_data.is_empty() || trace.is_some();
        let has_extras = troubled || has_data || !events.is_empty();
        let extras = BranchExtras {
            application_data,
            attempts,
            last_failure,
            refusal,
            events,
            trace,
            rows: Vec::new(),
        };
        Self {
            id: record.id,
            sequence: record.sequence,
            mode: record.mode,
            stage,
            // That is not stored. If it registers again, its local transaction is open.
            is_ahead: true,
            site,
            token: record.token,
            registered_at: record.registered_at,
            phase_one_at: record.phase_one_at.unwrap_or_default(),
            rows,
            extras: has_extras.then(|| Box::new(extras)),
        }
    }
}
