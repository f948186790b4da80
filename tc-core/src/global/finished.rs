//! A finished global, as the history holds it in memory.
//!
//! Leaner than its record, since many are remembered: names are shared, and what few of them have
//! is boxed. `record` gives the stored form.

use std::iter;
use std::sync::Arc;

use super::branch::Branch;
use super::state::{Global, GlobalExtras};
use crate::collections::interner::{BranchSite, Names, Origin};
use crate::contract::{
    BranchId, ClientId, Decision, Event, EventKind, FinishedBranch, GlobalRecord, GlobalState,
    GlobalStatus, Labels, Mode, Timestamp, Xid,
};

#[derive(Clone, Debug)]
pub(crate) struct FinishedGlobal {
    pub(crate) xid: Xid,
    pub(crate) origin: Arc<Origin>,
    pub(crate) begun_at: Timestamp,
    /// That of its record.
    pub(crate) deadline: Timestamp,
    state: GlobalState,
    pub(crate) branches: Box<[RememberedBranch]>,
    events: KeptEvents,
    /// Without its events.
    extras: Option<Box<GlobalExtras>>,
}

/// The memory that is kept of a branch.
#[derive(Clone, Debug)]
pub(crate) struct RememberedBranch {
    pub(crate) id: BranchId,
    pub(crate) site: Arc<BranchSite>,
    mode: Mode,
    attempts: u32,
    registered_at: Timestamp,
    finished_at: Timestamp,
    /// When phase one was reported done; 0 if it was not.
    phase_one_at: Timestamp,
    events: Arc<[Event]>,
}

/// The events of a finished global.
#[derive(Clone, Debug)]
enum KeptEvents {
    /// Nothing but the decision, as of nearly all globals.
    Decided {
        at: Timestamp,
        what: Arc<str>,
    },
    Events(Arc<[Event]>),
}

impl FinishedGlobal {
    pub(crate) fn new(mut global: Global, state: GlobalState) -> Self {
        let deadline = global.record_deadline();
        let mut extras = global.extras.take().map(|extras| *extras).unwrap_or_default();
        // Nothing of it is called any more.
        extras.trace = None;
        Self {
            xid: global.xid,
            origin: global.origin,
            begun_at: global.begun_at,
            deadline,
            state,
            branches: global.branches.iter().map(RememberedBranch::new).collect(),
            events: KeptEvents::of(std::mem::take(&mut extras.events)),
            extras: extras.boxed(),
        }
    }

    pub(crate) fn restore(names: &mut Names, record: GlobalRecord) -> Self {
        let GlobalRecord { address, application, name, labels, key, .. } = record;
        let client = ClientId::default();
        let branches = record.finished_branches.iter();
        let extras = GlobalExtras {
            labels,
            key,
            paused: record.paused,
            rollback_only: record.rollback_only,
            ..GlobalExtras::default()
        };
        Self {
            xid: record.xid,
            origin: names.origin(&Origin { address, application, name, client }),
            begun_at: record.begun_at,
            deadline: record.deadline,
            state: record.state,
            branches: branches.map(|it| RememberedBranch::restore(names, it)).collect(),
            events: KeptEvents::restore(names, record.events),
            extras: extras.boxed(),
        }
    }

    pub(crate) fn status(&self) -> GlobalStatus {
        self.state.status()
    }

    pub(crate) fn finished_at(&self) -> Option<Timestamp> {
        self.state.finished_at()
    }

    pub(crate) fn decision(&self) -> Option<Decision> {
        self.state.decision()
    }

    pub(crate) fn labels(&self) -> &Labels {
        self.extras.as_ref().map_or(&Labels::NONE, |extras| &extras.labels)
    }

    /// The key by which a second begin finds it.
    pub(crate) fn key(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.key.as_ref()
    }

    pub(crate) fn record(&self) -> GlobalRecord {
        self.record_with(&self.branches)
    }

    /// The record with these branches instead of all.
    pub(crate) fn record_with(&self, branches: &[RememberedBranch]) -> GlobalRecord {
        let extras = self.extras.as_deref();
        GlobalRecord {
            xid: self.xid,
            address: self.origin.address.clone(),
            application: self.origin.application.clone(),
            name: self.origin.name.clone(),
            begun_at: self.begun_at,
            deadline: self.deadline,
            state: self.state,
            paused: extras.is_some_and(|extras| extras.paused),
            rollback_only: extras.is_some_and(|extras| extras.rollback_only),
            events: self.events.events(),
            labels: self.labels().clone(),
            key: self.key().cloned(),
            trace: None,
            finished_branches: branches.iter().map(RememberedBranch::record).collect(),
        }
    }
}

impl RememberedBranch {
    fn new(branch: &Branch) -> Self {
        Self {
            id: branch.id,
            site: branch.site.clone(),
            mode: branch.mode,
            attempts: branch.attempts(),
            registered_at: branch.registered_at,
            finished_at: branch.finished_at(),
            phase_one_at: branch.phase_one_at,
            events: branch.events(),
        }
    }

    fn restore(names: &mut Names, record: &FinishedBranch) -> Self {
        Self {
            id: record.id,
            site: names.site(&record.resource, None),
            mode: record.mode,
            attempts: record.attempts,
            registered_at: record.registered_at,
            finished_at: record.finished_at,
            phase_one_at: record.phase_one_at.unwrap_or_default(),
            events: record.events.clone(),
        }
    }

    fn record(&self) -> FinishedBranch {
        FinishedBranch {
            id: self.id,
            resource: self.site.resource.clone(),
            mode: self.mode,
            registered_at: self.registered_at,
            finished_at: self.finished_at,
            attempts: self.attempts,
            phase_one_at: Some(self.phase_one_at).filter(|at| at.0 > 0),
            events: self.events.clone(),
        }
    }
}

impl KeptEvents {
    fn of(events: Arc<[Event]>) -> Self {
        match &*events {
            [Event { at, what, kind: EventKind::Decided }] => {
                Self::Decided { at: *at, what: what.clone() }
            }
            _ => Self::Events(events),
        }
    }

    /// As [`of`](Self::of), its text shared.
    fn restore(names: &mut Names, events: Arc<[Event]>) -> Self {
        match Self::of(events) {
            Self::Decided { at, what } => Self::Decided { at, what: names.text(&what) },
            Self::Events(events) => Self::Events(events),
        }
    }

    fn events(&self) -> Arc<[Event]> {
        match self {
            Self::Decided { at, what } => {
                let (at, what) = (*at, what.clone());
                iter::once(Event { at, what, kind: EventKind::Decided }).collect()
            }
            Self::Events(events) => events.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand are remembered.
    #[test]
    fn what_is_remembered_stays_small() {
        assert_eq!((size_of::<FinishedGlobal>(), size_of::<RememberedBranch>()), (96, 64));
    }
}
