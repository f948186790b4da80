//! The data that the coordinator keeps of a branch for phase two, and gives back with each call.

use handfast_proto::v1::PhaseTwoBranch;
use serde::{Deserialize, Serialize};

use super::branch_name::{BranchName, Node};
use crate::xid_text::XidText;

/// The data that phase two needs about a branch, whichever process it reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchContext {
    /// The node in the name of the branch.
    node: String,
    /// The number by which the database remembers how the branch ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<String>,
}

impl BranchContext {
    /// Makes the context that is registered with a branch.
    #[must_use]
    pub fn of(name: &BranchName, number: Option<String>) -> Self {
        Self { node: name.node.as_str().to_owned(), number }
    }

    /// Encodes the context.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts can be written as JSON")
    }
}

/// Reads the name and the number of a branch from the context of its registration.
///
/// # Errors
/// The reason why the context cannot be read.
pub fn read(branch: &PhaseTwoBranch) -> Result<(BranchName, Option<String>), String> {
    let context: BranchContext = serde_json::from_slice(&branch.application_data)
        .map_err(|error| format!("the branch was registered by another version: {error}"))?;
    let node = Node::new(&context.node).map_err(|error| error.to_string())?;
    let xid = XidText::new(&branch.xid).map_err(|error| error.to_string())?;
    Ok((BranchName { node, branch: branch.branch_id, xid }, context.number))
}
