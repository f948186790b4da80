//! The nodes that share a store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which node leads, as the asked node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The node that was asked.
    pub node: ClusterNode,
    /// Where it stands.
    pub standing: NodeStanding,
    /// Since when it stands there.
    pub since: String,
    /// The store that keeps the records.
    pub store: String,
    /// The node that leads, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<ClusterNode>,
    /// The leader's epoch: each lead has a later one than the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The nodes that have said that they are there, by name, as this node last read them from the
    /// store; absent if the store cannot be shared. Records are in the store alone, so that no node
    /// is behind another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<SeenClusterNode>>,
}

/// A node that has said that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeenClusterNode {
    /// The node.
    pub node: ClusterNode,
    /// The milliseconds since it last said so, which it does every 2 s.
    pub seen_ms_ago: u64,
}

/// The answer to a transfer of the lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferReply {
    /// The node that leads now.
    pub leader: ClusterNode,
    /// Its epoch.
    pub epoch: u64,
}

/// A node of those that share a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its name.
    pub id: String,
    /// The version of its program.
    pub version: String,
    /// The address of its native API.
    pub grpc: String,
    /// The address of its admin API.
    pub admin: String,
    /// The address of its port for clients of Seata, if that is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seata: Option<String>,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStanding {
    /// Another node leads, or none: requests are passed on.
    Following,
    /// It gains the lead, and does not answer yet.
    Gaining,
    /// It answers.
    Leading,
    /// It has stopped.
    Ended,
}
