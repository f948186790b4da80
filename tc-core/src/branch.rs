//! A branch of an unfinished global, as held in memory.
//!
//! Leaner than its record: rows are names of lock slots, and what only troubled branches have is
//! boxed. `record` gives the stored form.

use std::sync::Arc;

use crate::lock::{LockId, LockTable};
use crate::record::{BranchRecord, BranchState, FinishedBranch};
use crate::request::{DirtyRow, LockMode, Mode, Resolution, RowLock};
use crate::{BranchId, FencingToken, Timestamp, Xid};

#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) id: BranchId,
    pub(crate) sequence: u32,
    pub(crate) mode: Mode,
    pub(crate) stage: Stage,
    pub(crate) resource: Arc<str>,
    pub(crate) token: FencingToken,
    pub(crate) registered_at: Timestamp,
    pub(crate) rows: Vec<HeldRow>,
    pub(crate) application_data: Box<[u8]>,
    pub(crate) trouble: Option<Box<Trouble>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRow {
    pub(crate) lock: LockId,
    pub(crate) mode: LockMode,
}

/// Where a branch stands. What a refused one was refused for is in its [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Registered,
    PhaseOneDone,
    Refused,
    Resolved(Resolution),
    Finished(Timestamp),
}

/// What went wrong in phase two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) attempts: u32,
    pub(crate) last_failure: Option<(Timestamp, Arc<str>)>,
    pub(crate) refusal: Option<(Arc<str>, Arc<[DirtyRow]>)>,
}

impl Branch {
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.trouble.as_ref().map_or(0, |trouble| trouble.attempts)
    }

    pub(crate) fn resolution(&self) -> Option<Resolution> {
        match self.stage {
            Stage::Resolved(resolution) => Some(resolution),
            Stage::Registered | Stage::PhaseOneDone | Stage::Refused | Stage::Finished(_) => None,
        }
    }

    /// Counts a failed attempt at phase two.
    pub(crate) fn fail(&mut self, now: Timestamp, error: Arc<str>) -> &mut Trouble {
        let trouble = self.trouble.get_or_insert_default();
        trouble.attempts = trouble.attempts.saturating_add(1);
        trouble.last_failure = Some((now, error));
        trouble
    }

    pub(crate) fn record(&self, xid: Xid, locks: &LockTable) -> BranchRecord {
        let row = |row: &HeldRow| RowLock {
            table: locks.space(row.lock).table.clone(),
            key: locks.key(row.lock).into(),
            mode: row.mode,
        };
        BranchRecord {
            xid,
            id: self.id,
            sequence: self.sequence,
            resource: self.resource.clone(),
            mode: self.mode,
            rows: self.rows.iter().map(row).collect(),
            token: self.token,
            registered_at: self.registered_at,
            application_data: self.application_data.clone(),
            state: self.state(),
            attempts: self.attempts(),
            last_failure: self.trouble.as_ref().and_then(|trouble| trouble.last_failure.clone()),
        }
    }

    fn state(&self) -> BranchState {
        match self.stage {
            Stage::Registered => BranchState::Registered,
            Stage::PhaseOneDone => BranchState::PhaseOneDone,
            Stage::Refused => {
                let refusal = self.trouble.as_ref().and_then(|trouble| trouble.refusal.clone());
                let (error, rows) = refusal.unwrap_or_else(|| (Arc::from(""), Arc::from([])));
                BranchState::Refused(error, rows)
            }
            Stage::Resolved(resolution) => BranchState::Resolved(resolution),
            Stage::Finished(at) => BranchState::Finished(at),
        }
    }

    pub(crate) fn finished(&self, finished_at: Timestamp) -> FinishedBranch {
        FinishedBranch {
            id: self.id,
            resource: self.resource.clone(),
            mode: self.mode,
            registered_at: self.registered_at,
            finished_at,
            attempts: self.attempts(),
        }
    }

    /// The branch of a record, without its rows: the caller takes their locks.
    pub(crate) fn restore(record: BranchRecord) -> Self {
        let (stage, refusal) = match record.state {
            BranchState::Registered => (Stage::Registered, None),
            BranchState::PhaseOneDone => (Stage::PhaseOneDone, None),
            BranchState::Refused(error, rows) => (Stage::Refused, Some((error, rows))),
            BranchState::Resolved(resolution) => (Stage::Resolved(resolution), None),
            BranchState::Finished(at) => (Stage::Finished(at), None),
        };
        let (attempts, last_failure) = (record.attempts, record.last_failure);
        let troubled = attempts > 0 || last_failure.is_some() || refusal.is_some();
        Self {
            id: record.id,
            sequence: record.sequence,
            mode: record.mode,
            stage,
            resource: record.resource,
            token: record.token,
            registered_at: record.registered_at,
            rows: Vec::with_capacity(record.rows.len()),
            application_data: record.application_data,
            trouble: troubled.then(|| Box::new(Trouble { attempts, last_failure, refusal })),
        }
    }
}
