//! Messages about the audit log.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Selects lines of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only lines about this transaction or saga.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<String>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A page of the audit log of the node that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Whether there is a file; without one, lines go to the process's log alone.
    pub is_kept: bool,
    /// The lines of one part of the file, latest first; perhaps none, although the log goes on.
    pub items: Vec<AuditLine>,
    /// The `cursor` of earlier lines, if there are any.
    pub next: Option<String>,
}

/// A line of the audit log: one stage of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// When it was written.
    pub at: String,
    /// `asked` before the action is carried out, `answered` before it is answered.
    pub stage: String,
    /// Ties the two lines of one action together.
    pub id: String,
    /// The operator.
    pub operator: String,
    /// The action, such as `rollback`.
    pub action: String,
    /// The transaction's number, for actions on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<String>,
    /// The branch, for actions on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The named lock, for actions on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The token of the lease, for actions on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The key of a saga that is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<String>,
    /// The step of a saga that is given a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The `id` of the action on several transactions that this is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk: Option<String>,
    /// The event of an outbox, for actions on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// A resolution, the operator's reason, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// `done`, or the code of the refusal, once answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The node that carried it out, of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The epoch in which that node led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
