//! Messages about one action on several transactions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Resolution, Status, TransactionQuery};

/// An action that several transactions can be given at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum BulkAction {
    /// Tries phase two of every unfinished branch at once.
    Retry,
    /// Stops attempts of phase two until the transaction is resumed.
    Pause,
    /// Resumes attempts of phase two after a pause.
    Resume,
    /// Ends every branch whose rollback met a dirty write.
    Resolve,
    /// Rolls back undecided transactions.
    Rollback,
}

/// One action on several transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// The action.
    pub action: BulkAction,
    /// Names the transactions of a dry run by what they are, as the list of transactions does. Its
    /// `limit` is 100 by default and at most 1,000; without `status` only unfinished ones are
    /// named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<TransactionQuery>,
    /// Names them one by one, at most 1,000: XIDs, or `XID/BRANCH` for one branch to resolve. An
    /// action that is to be carried out is given the `target`s that the dry run would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Whether to say only what would change. This is so unless it is `false`.
    #[serde(default = "is_dry")]
    pub dry_run: bool,
    /// The `confirmation` of the dry run that named these targets; needed to carry it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<String>,
    /// How `resolve` ends the branches; by default the clean rows are restored.
    #[serde(default)]
    pub resolution: Resolution,
    /// For the timelines and the audit log; at most 1,024 bytes are kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Nothing is changed by a request that does not say so.
fn is_dry() -> bool {
    true
}

/// The result of one action on several transactions, or what it would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReply {
    /// The action.
    pub action: BulkAction,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Each transaction, or each branch to be resolved.
    pub items: Vec<BulkItem>,
    /// How many of them were changed, or would be.
    pub changes: usize,
    /// How many of them were refused, or would be.
    pub refusals: usize,
    /// Lets the targets be changed; only of a dry run that would change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<String>,
    /// The `cursor` of the filter for the transactions that were not named, if there may be any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One transaction of several, or one branch, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkItem {
    /// The XID, or `XID/BRANCH` for a branch to be resolved.
    pub target: String,
    /// The result of the action on it.
    pub outcome: BulkOutcome,
    /// The application that began it; in a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The application's name for this kind of transaction; in a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Names and values that the application calls it by; in a dry run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The status of the transaction: before the action in a dry run, after it else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The change that it would undergo; in a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The stable code of a refusal, listed in docs/errors.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The result of an action on one transaction, or that of its dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkOutcome {
    /// It would be changed.
    WouldChange,
    /// It would stay as it is, since the same was done before.
    Unchanged,
    /// The action was carried out.
    Done,
    /// The action is refused.
    Refused,
}
