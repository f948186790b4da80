//! The nodes that share the store. Each writes a key from time to time, so that an operator sees
//! which are there. Nothing is decided by it.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::Timestamp;
use handfast_etcd::{EtcdClient, EtcdError, KeyValue, RequestOp, delete, put};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::keys::Keys;
use super::members::Members;
use crate::store::{CoordinatorNode, FORGET_AFTER, NODES_MAX, SAY_EVERY, SeenNode, StoreError};
use crate::time_format;

/// The value of a node's key.
#[derive(Debug, Serialize, Deserialize)]
struct NodeValue {
    node: CoordinatorNode,
    /// By the clock of the node's machine.
    seen_ms: u64,
}

/// Notes again and again that a node is there, for ever.
pub(super) async fn announce(members: Arc<Members>, keys: Keys, node: CoordinatorNode) {
    loop {
        if let Err(error) = note(&members, &keys, &node).await {
            let store = members.store();
            tracing::debug!(store, %error, "this node could not be noted as being there");
        }
        sleep(SAY_EVERY).await;
    }
}

async fn note(members: &Members, keys: &Keys, node: &CoordinatorNode) -> Result<(), EtcdError> {
    let now = time_format::now();
    let found = members.attempt(|etcd| read(etcd, keys.clone())).await?;
    let long_gone = |found: &&KeyValue| ago(found, now).is_some_and(|ago| ago > FORGET_AFTER);
    let value = NodeValue { node: node.clone(), seen_ms: now.0 };
    let value = serde_json::to_vec(&value).expect("a node can be written as JSON");
    let own = keys.node(&node.id);
    let others = found.iter().filter(long_gone).filter(|found| found.key != own);
    let mut steps: Vec<RequestOp> = others.map(|found| delete(found.key.clone())).collect();
    steps.push(put(own, value, 0));
    members.attempt(|etcd| async move { etcd.run(steps).await }).await.map(drop)
}

/// Returns the nodes that have been noted.
pub(super) async fn list(members: &Members, keys: &Keys) -> Result<Vec<SeenNode>, StoreError> {
    let found = members.until_answered(|etcd| read(etcd, keys.clone()), || true).await?;
    let now = time_format::now();
    // A node of a later version may describe itself in another way.
    let seen = found.iter().filter_map(|found| {
        let NodeValue { node, .. } = serde_json::from_slice(&found.value).ok()?;
        Some(SeenNode { node, seen_ago: ago(found, now)? })
    });
    Ok(seen.collect())
}

async fn read(etcd: EtcdClient, keys: Keys) -> Result<Vec<KeyValue>, EtcdError> {
    Ok(etcd.range(&keys.nodes(), NODES_MAX.into(), 0).await?.keys)
}

/// Returns the time since a node was noted: 0 if its clock is ahead of this machine's.
fn ago(found: &KeyValue, now: Timestamp) -> Option<Duration> {
    let value: NodeValue = serde_json::from_slice(&found.value).ok()?;
    Some(Duration::from_millis(now.0.saturating_sub(value.seen_ms)))
}
