//! What is shown of a branch that is refused, and how an operator ends it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why phase two is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// In the words of the process that refused.
    pub error: String,
    /// The rows that the branch has written, the dirty ones first; not all of them where there are
    /// many. Empty where the branch has no row images.
    pub rows: Vec<DirtyRow>,
    /// How many rows the branch has written, listed or not.
    #[serde(default)]
    pub rows_total: u64,
    /// How many of them are dirty.
    #[serde(default)]
    pub rows_dirty: u64,
    /// The events of the branch's outbox; missing where the branch can have none, or is refused by
    /// a client that does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<HeldEvents>,
}

/// Events that a refused branch holds, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldEvents {
    /// How many are held.
    pub held: u64,
    /// What `restore_clean` does to them.
    pub on_restore_clean: EventFate,
    /// What `accept_current` does to them.
    pub on_accept_current: EventFate,
    /// What `force_before` does to them.
    pub on_force_before: EventFate,
}

/// What becomes of held events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventFate {
    /// They go, as in a rollback.
    Dropped,
    /// They leave for the broker, as after a commit.
    Released,
}

/// A row that a refused branch has written, with what each answer would do to it as it stood when
/// the branch was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirtyRow {
    /// The table.
    pub table: String,
    /// The key, for people.
    pub key: String,
    /// The columns in question.
    pub columns: Vec<DirtyColumn>,
    /// How it is beside its images.
    #[serde(default)]
    pub standing: RowStanding,
    /// What `restore_clean` would do to it; `null` if the client has not said.
    #[serde(default)]
    pub on_restore_clean: Option<RowChange>,
    /// What `accept_current` would do to it.
    #[serde(default)]
    pub on_accept_current: RowChange,
    /// What `force_before` would do to it; `null` if the client has not said.
    #[serde(default)]
    pub on_force_before: Option<RowChange>,
}

/// How a row of a refused branch is beside its images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowStanding {
    /// Somebody else wrote it since.
    #[default]
    Dirty,
    /// As the branch left it.
    Clean,
    /// As the branch found it: it is back already.
    Restored,
}

/// What an answer does to a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowChange {
    /// Nothing: it stays as it is, or away.
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
    /// What the transaction found.
    pub before: Option<String>,
    /// What the transaction wrote.
    pub after: Option<String>,
    /// What is there.
    pub current: Option<String>,
}

/// How an operator ends a dirty write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Resolution {
    /// Put back the rows that are clean, leave those that are dirty; held events go.
    #[default]
    RestoreClean,
    /// Leave every row as it is and drop the undo log; held events leave.
    AcceptCurrent,
    /// Write the before image over every row; held events go.
    ForceBefore,
}

/// How a refused branch shall end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The resolution; without one the clean rows are put back.
    #[serde(default)]
    pub resolution: Resolution,
}
