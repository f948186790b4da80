//! The timeline of a global or a saga: decisions and operator actions.

use std::sync::Arc;

use super::id::Timestamp;

/// An entry of a global's timeline that its and its branches' other fields do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// The event, for operators, such as `decided: roll back (timeout)` or `retry by alice`.
    pub what: Arc<str>,
}

/// Returns a timeline with one more entry. Beyond the limit the first entry stays, and the oldest
/// of the others are dropped (BOUNDED).
pub(crate) fn noted(events: &[Event], event: Event, events_max: usize) -> Arc<[Event]> {
    let Some((first, rest)) = events.split_first() else { return [event].into() };
    let is_full = events.len() >= events_max.max(2);
    let kept = rest.iter().skip(usize::from(is_full));
    [first].into_iter().chain(kept).cloned().chain([event]).collect()
}
