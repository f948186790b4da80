//! The course of a global, of one of its branches, or of a saga: what happened that their other
//! fields do not show.

use std::sync::Arc;

use super::id::{Timestamp, Xid};

/// The most entries that one branch keeps of its course. Too few: the first errors of an outage are
/// lost among later ones. Too many: each failed attempt stores them all again.
const BRANCH_EVENTS_MAX: usize = 8;

/// An entry of a course.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// The event, for operators, such as `decided: roll back (timeout)` or `retry by alice`; of a
    /// failed attempt its error.
    pub what: Arc<str>,
    /// The kind of event, for programs.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// Another one, or one of a record from before there were kinds.
    #[default]
    Note,
    /// The decision was taken.
    Decided,
    /// An operator acted.
    Acted,
    /// A wait for rows came to its end.
    Waited {
        /// How long it had lasted.
        ms: u64,
        /// The global that was in the way when it began.
        behind: Xid,
    },
    /// An attempt at phase two, a vote, or an attempt at a try that the coordinator calls, failed.
    Failed {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
}

/// Returns a course with one more entry. Beyond the limit the first entry stays, and the oldest of
/// the others are dropped (BOUNDED).
pub(crate) fn noted(events: &[Event], event: Event, events_max: usize) -> Arc<[Event]> {
    let Some((first, rest)) = events.split_first() else { return [event].into() };
    let is_full = events.len() >= events_max.max(2);
    let kept = rest.iter().skip(usize::from(is_full));
    [first].into_iter().chain(kept).cloned().chain([event]).collect()
}

/// Returns the course of a branch with one more entry. Of attempts that fail one after the other
/// for the same reason, the first and the last are kept: an outage must not push out what was
/// before it, nor make the record of each branch larger with each attempt.
pub(crate) fn noted_of_branch(events: &[Event], event: Event) -> Arc<[Event]> {
    let repeats = |earlier: &Event| {
        let failed = |event: &Event| matches!(event.kind, EventKind::Failed { .. });
        failed(earlier) && failed(&event) && earlier.what == event.what
    };
    let before_last = events.len().checked_sub(2).map(|at| &events[at..]);
    match before_last {
        Some([first, last]) if repeats(first) && repeats(last) => {
            noted(&events[..events.len() - 1], event, BRANCH_EVENTS_MAX)
        }
        Some(_) | None => noted(events, event, BRANCH_EVENTS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(attempt: u32, what: &str) -> Event {
        Event { at: Timestamp(0), what: what.into(), kind: EventKind::Failed { attempt } }
    }

    /// The attempts that are kept of attempts that failed with these errors.
    fn kept(errors: &[&str]) -> Vec<u32> {
        let mut events: Arc<[Event]> = Arc::default();
        for (attempt, error) in (1..).zip(errors) {
            events = noted_of_branch(&events, failed(attempt, error));
        }
        let attempt = |event: &Event| {
            let EventKind::Failed { attempt } = event.kind else { panic!("{event:?}") };
            attempt
        };
        events.iter().map(attempt).collect()
    }

    #[test]
    fn repeated_errors_are_kept_as_the_first_and_the_last() {
        assert_eq!(kept(&["down"]), [1]);
        assert_eq!(kept(&["down", "down"]), [1, 2]);
        assert_eq!(kept(&["down", "down", "down", "down"]), [1, 4]);
        assert_eq!(kept(&["down", "down", "down", "busy", "down"]), [1, 3, 4, 5]);
    }

    #[test]
    fn the_first_and_the_latest_different_errors_are_kept() {
        let errors = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert_eq!(kept(&errors), [1, 4, 5, 6, 7, 8, 9, 10]);
    }
}
