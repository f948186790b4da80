//! A global's timeline, from its record and its branches' records, in order of time.

use handfast_core::{BranchRecord, BranchState, GlobalPart, GlobalState, Timestamp};

use super::model::TimelineEntry;
use crate::time_format;

/// Returns the events of a part's branches and, with the first part, of the global, oldest first.
/// Events of one millisecond are in causal order.
#[must_use]
pub(super) fn timeline(part: &GlobalPart, is_first: bool) -> Vec<TimelineEntry> {
    let GlobalPart { record: global, branches, .. } = part;
    let branches = || branches.iter().map(|branch| &branch.record);
    let mut happened = Vec::new();
    if is_first {
        happened.push((global.begun_at, "begun".to_owned()));
    }
    for branch in branches() {
        let registered = format!("branch {} registered on {}", branch.id, branch.resource);
        happened.push((branch.registered_at, registered));
    }
    for branch in global.finished_branches.iter() {
        let registered = format!("branch {} registered on {}", branch.id, branch.resource);
        happened.push((branch.registered_at, registered));
    }
    let events = global.events.iter().filter(|_| is_first);
    happened.extend(events.map(|event| (event.at, event.what.to_string())));
    branches().for_each(|branch| happened.extend(phase_two(branch)));
    for branch in global.finished_branches.iter() {
        happened.push((branch.finished_at, finished(branch.id.to_string(), branch.attempts)));
    }
    happened.extend(ended(global.state).filter(|_| is_first));
    // A stable sort, because the events were added in causal order.
    happened.sort_by_key(|(at, _)| *at);
    let entry = |(at, what)| TimelineEntry { at: time_format::rfc3339(at), what };
    happened.into_iter().map(entry).collect()
}

fn phase_two(branch: &BranchRecord) -> Vec<(Timestamp, String)> {
    let mut happened = Vec::new();
    if let Some((at, error)) = &branch.last_failure {
        let attempts = branch.attempts;
        happened.push((*at, format!("branch {}: attempt {attempts} failed: {error}", branch.id)));
    }
    match &branch.state {
        BranchState::Finished(at) => {
            happened.push((*at, finished(branch.id.to_string(), branch.attempts)));
        }
        BranchState::Registered
        | BranchState::PhaseOneDone
        | BranchState::Refused(..)
        | BranchState::Resolved(_) => {}
    }
    happened
}

fn finished(branch: String, attempts: u32) -> String {
    match attempts {
        0 => format!("branch {branch} finished"),
        failed => format!("branch {branch} finished after {failed} failed attempt(s)"),
    }
}

fn ended(state: GlobalState) -> Option<(Timestamp, String)> {
    match state {
        GlobalState::Committed(at) => Some((at, "committed".to_owned())),
        GlobalState::RolledBack(_, at) => Some((at, "rolled back".to_owned())),
        GlobalState::Active | GlobalState::Committing | GlobalState::RollingBack(_) => None,
    }
}
