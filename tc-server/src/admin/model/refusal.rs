//! Messages about a refused branch, and how an operator ends it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why phase two is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// The error of the process that refused.
    pub error: String,
    /// The rows that the branch has written, dirty rows first, up to a limit. Empty if the branch
    /// has no row images.
    pub rows: Vec<DirtyRow>,
    /// How many rows the branch has written, listed or not.
    #[serde(default)]
    pub rows_total: u64,
    /// How many of them are dirty.
    #[serde(default)]
    pub rows_dirty: u64,
    /// The events of the branch's outbox; missing if the branch can have none, or if the client
    /// that refused it does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<HeldEvents>,
}

/// The events that a refused branch holds, and the effect of each resolution on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldEvents {
    /// The number of held events.
    pub held: u64,
    /// The effect of `restore_clean` on them.
    pub on_restore_clean: EventFate,
    /// The effect of `accept_current` on them.
    pub on_accept_current: EventFate,
    /// The effect of `force_before` on them.
    pub on_force_before: EventFate,
}

/// The effect of a resolution on held events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventFate {
    /// They are deleted, as in a rollback.
    Dropped,
    /// They are sent to the broker, as after a commit.
    Released,
}

/// A row that a refused branch has written, with the effect that each resolution would have had on
/// it when the branch was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirtyRow {
    /// The table.
    pub table: String,
    /// The key for display.
    pub key: String,
    /// The columns in question.
    pub columns: Vec<DirtyColumn>,
    /// How it compares with its images.
    #[serde(default)]
    pub standing: RowStanding,
    /// The effect of `restore_clean` on it; `null` if the client did not report it.
    #[serde(default)]
    pub on_restore_clean: Option<RowChange>,
    /// The effect of `accept_current` on it.
    #[serde(default)]
    pub on_accept_current: RowChange,
    /// The effect of `force_before` on it; `null` if the client did not report it.
    #[serde(default)]
    pub on_force_before: Option<RowChange>,
}

/// How a row of a refused branch compares with its images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowStanding {
    /// It was changed by another writer since.
    #[default]
    Dirty,
    /// It is as the branch left it.
    Clean,
    /// It is as the branch found it: already restored.
    Restored,
}

/// The effect of a resolution on a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowChange {
    /// None: the row stays as it is, or stays missing.
    #[default]
    Left,
    /// The before image is written over it.
    WrittenBack,
    /// It is removed.
    Removed,
    /// It is inserted again.
    Inserted,
}

/// One column in the database's text form; `null` is NULL, or a missing row if every column is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirtyColumn {
    /// The column.
    pub name: String,
    /// The value that the transaction found.
    pub before: Option<String>,
    /// The value that the transaction wrote.
    pub after: Option<String>,
    /// The current value.
    pub current: Option<String>,
}

/// How an operator ends a dirty write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Resolution {
    /// Restores the clean rows, leaves the dirty ones; held events are deleted.
    #[default]
    RestoreClean,
    /// Leaves every row as it is and deletes the undo log; held events are sent.
    AcceptCurrent,
    /// Writes the before image over every row; held events are deleted.
    ForceBefore,
}

/// How to end a refused branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The resolution; by default the clean rows are restored.
    #[serde(default)]
    pub resolution: Resolution,
    /// For the audit log; at most 1,024 bytes are kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
