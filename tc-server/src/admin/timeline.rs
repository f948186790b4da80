//! A global's timeline, from its record and its branches' records, in order of time.

use std::sync::Arc;

use handfast_core::{
    BranchId, BranchState, BranchView, Event, EventKind, FinishedBranch, GlobalPart, GlobalState,
    Timestamp,
};

use super::model::{self, TimelineEntry};
use crate::time_format;

/// Returns the events of a part's branches and, with the first part, of the global, oldest first.
/// Events of one millisecond are in causal order.
#[must_use]
pub(super) fn timeline(part: &GlobalPart, is_first: bool) -> Vec<TimelineEntry> {
    let GlobalPart { record: global, branches, .. } = part;
    let open = branches.iter().map(BranchTimeline::open);
    let courses: Vec<BranchTimeline<'_>> =
        open.chain(global.finished_branches.iter().map(BranchTimeline::finished)).collect();
    let mut happened = Vec::new();
    if is_first {
        happened.push(entry(global.begun_at, model::EventKind::Begun, "begun".to_owned()));
    }
    for course in &courses {
        happened.extend(course.phase_one());
    }
    let events = global.events.iter().filter(|_| is_first);
    happened.extend(events.map(of_global));
    for course in &courses {
        happened.extend(course.phase_two());
    }
    happened.extend(ended(global.state).filter(|_| is_first));
    // A stable sort, because the events were added in causal order.
    happened.sort_by_key(|(at, _)| *at);
    happened.into_iter().map(|(_, entry)| entry).collect()
}

type Happened = (Timestamp, TimelineEntry);

/// The parts of a branch that a timeline shows.
struct BranchTimeline<'a> {
    id: BranchId,
    resource: &'a str,
    registered_at: Timestamp,
    phase_one_at: Option<Timestamp>,
    events: &'a [Event],
    attempts: u32,
    last_failure: Option<&'a (Timestamp, Arc<str>)>,
    finished_at: Option<Timestamp>,
}

impl<'a> BranchTimeline<'a> {
    fn open(branch: &'a BranchView) -> Self {
        let record = &branch.record;
        let finished_at = match record.state {
            BranchState::Finished(at) => Some(at),
            BranchState::Registered
            | BranchState::Deciding
            | BranchState::PhaseOneDone
            | BranchState::Refused(..)
            | BranchState::Resolved(_) => None,
        };
        Self {
            id: record.id,
            resource: &record.resource,
            registered_at: record.registered_at,
            phase_one_at: record.phase_one_at,
            events: &record.events,
            attempts: record.attempts,
            last_failure: record.last_failure.as_ref(),
            finished_at,
        }
    }

    fn finished(branch: &'a FinishedBranch) -> Self {
        Self {
            id: branch.id,
            resource: &branch.resource,
            registered_at: branch.registered_at,
            phase_one_at: branch.phase_one_at,
            events: &branch.events,
            attempts: branch.attempts,
            last_failure: None,
            finished_at: Some(branch.finished_at),
        }
    }

    /// Waits for rows, the registration, and the report of phase one.
    fn phase_one(&self) -> Vec<Happened> {
        let waits = self.events.iter().filter(|it| matches!(it.kind, EventKind::Waited { .. }));
        let mut happened: Vec<Happened> = waits.map(|event| self.of_branch(event)).collect();
        let registered = format!("branch {} registered on {}", self.id, self.resource);
        happened.push(self.entry(self.registered_at, model::EventKind::Registered, registered));
        if let Some(at) = self.phase_one_at {
            let what = format!("branch {}: phase one done", self.id);
            happened.push(self.entry(at, model::EventKind::PhaseOneDone, what));
        }
        happened
    }

    /// Failed attempts, and the end.
    fn phase_two(&self) -> Vec<Happened> {
        let failed = |it: &&Event| !matches!(it.kind, EventKind::Waited { .. });
        let events = self.events.iter().filter(failed);
        let mut happened: Vec<Happened> = events.map(|event| self.of_branch(event)).collect();
        // A record from before there were events has the last failure alone.
        if let Some((at, error)) = self.last_failure.filter(|_| happened.is_empty()) {
            let what = format!("branch {}: attempt {} failed: {error}", self.id, self.attempts);
            happened.push(self.entry(*at, model::EventKind::AttemptFailed, what));
        }
        if let Some(at) = self.finished_at {
            let what = match self.attempts {
                0 => format!("branch {} finished", self.id),
                failed => {
                    format!("branch {} finished after {failed} failed attempt(s)", self.id)
                }
            };
            happened.push(self.entry(at, model::EventKind::Finished, what));
        }
        happened
    }

    fn of_branch(&self, event: &Event) -> Happened {
        let what = match event.kind {
            EventKind::Failed { attempt } => {
                format!("branch {}: attempt {attempt} failed: {}", self.id, event.what)
            }
            EventKind::Note | EventKind::Decided | EventKind::Acted | EventKind::Waited { .. } => {
                format!("branch {}: {}", self.id, event.what)
            }
        };
        let (at, entry) = of_event(event, what);
        (at, TimelineEntry { branch: Some(self.id.to_string()), ..entry })
    }

    fn entry(&self, at: Timestamp, kind: model::EventKind, what: String) -> Happened {
        let (at, entry) = entry(at, kind, what);
        (at, TimelineEntry { branch: Some(self.id.to_string()), ..entry })
    }
}

fn of_global(event: &Event) -> Happened {
    of_event(event, event.what.to_string())
}

fn of_event(event: &Event, what: String) -> Happened {
    let (kind, ms, by) = match event.kind {
        EventKind::Note => (model::EventKind::Note, None, None),
        EventKind::Decided => (model::EventKind::Decided, None, None),
        EventKind::Acted => (model::EventKind::Operator, None, None),
        EventKind::Waited { ms, behind } => (model::EventKind::LockWait, Some(ms), Some(behind)),
        EventKind::Failed { .. } => (model::EventKind::AttemptFailed, None, None),
    };
    let (at, entry) = entry(event.at, kind, what);
    (at, TimelineEntry { ms, by: by.map(|xid| xid.to_string()), ..entry })
}

fn entry(at: Timestamp, kind: model::EventKind, what: String) -> Happened {
    let text = time_format::rfc3339(at);
    (at, TimelineEntry { at: text, what, kind, branch: None, ms: None, by: None })
}

fn ended(state: GlobalState) -> Option<Happened> {
    let (at, what) = match state {
        GlobalState::Committed(at) => (at, "committed"),
        GlobalState::RolledBack(_, at) => (at, "rolled back"),
        GlobalState::Active | GlobalState::Committing | GlobalState::RollingBack(_) => return None,
    };
    Some(entry(at, model::EventKind::Ended, what.to_owned()))
}
