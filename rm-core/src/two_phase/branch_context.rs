//! What the coordinator keeps of a branch for phase two, and gives back with each call.

use handfast_proto::v1::PhaseTwoBranch;
use serde::{Deserialize, Serialize};

use super::branch_name::{BranchName, Node};
use crate::xid_text::XidText;

/// What phase two needs to know of a branch, whichever process it reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchContext {
    /// Whose name the branch has in the database.
    node: String,
    /// By which the database remembers how the branch ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<String>,
}

impl BranchContext {
    /// What is registered with a branch.
    #[must_use]
    pub fn of(name: &BranchName, number: Option<String>) -> Self {
        Self { node: name.node.as_str().to_owned(), number }
    }

    /// As it is registered.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts can be written as JSON")
    }
}

/// The name of a branch, which its registration left with the coordinator, and its number.
///
/// # Errors
/// What of it cannot be read.
pub fn read(branch: &PhaseTwoBranch) -> Result<(BranchName, Option<String>), String> {
    let context: BranchContext = serde_json::from_slice(&branch.application_data)
        .map_err(|error| format!("the branch was registered by another version: {error}"))?;
    let node = Node::new(&context.node).map_err(|error| error.to_string())?;
    let xid = XidText::new(&branch.xid).map_err(|error| error.to_string())?;
    Ok((BranchName { node, branch: branch.branch_id, xid }, context.number))
}
