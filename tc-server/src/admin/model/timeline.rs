//! The course of a transaction: what has happened, and what time will bring.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When it happened.
    pub at: String,
    /// A description of the event.
    pub what: String,
    /// The kind of event.
    #[serde(default)]
    pub kind: EventKind,
    /// The branch that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How long it had lasted, if it is the end of a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// The number of the XID that was in the way when a wait began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Another one, or one of a transaction from before there were kinds.
    #[default]
    Note,
    /// The transaction began.
    Begun,
    /// A branch was registered.
    Registered,
    /// A wait for rows came to its end.
    LockWait,
    /// Phase one of a branch was reported done.
    PhaseOneDone,
    /// The decision was taken.
    Decided,
    /// An attempt at phase two of a branch failed.
    AttemptFailed,
    /// An operator acted.
    Operator,
    /// Phase two of a branch was done.
    Finished,
    /// The transaction ended.
    Ended,
}

/// Something that time will bring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timer {
    /// Its kind.
    pub kind: TimerKind,
    /// When; none if it depends on other things.
    pub at: Option<String>,
    /// The branch that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// A description of what happens.
    pub what: String,
}

/// The kind of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// The transaction is rolled back if it is undecided.
    Deadline,
    /// Phase two of a branch is tried again.
    Attempt,
    /// A process that was called counts as silent if it has not answered.
    Answer,
    /// Phase two of a branch waits for a process.
    Process,
}
