//! The nodes that share the store. Each writes a key from time to time and reads those of the
//! others, so that an operator sees which are there. Nothing is decided by it.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::Timestamp;
use handfast_etcd::{EtcdClient, EtcdError, KeyValue, RequestOp, delete, put};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use super::keys::Keys;
use super::members::Members;
use crate::store::{CoordinatorNode, FORGET_AFTER, NODES_MAX, SAY_EVERY, SeenNode};
use crate::time_format;

/// The value of a node's key.
#[derive(Debug, Serialize, Deserialize)]
struct NodeValue {
    node: CoordinatorNode,
    /// By the clock of the node's machine.
    seen_ms: u64,
}

/// Periodically notes that a node is there, and publishes which others are.
pub(super) async fn announce(
    members: Arc<Members>,
    keys: Keys,
    node: CoordinatorNode,
    seen: watch::Sender<Vec<SeenNode>>,
) {
    loop {
        match note_and_read(&members, &keys, &node).await {
            Ok(nodes) => drop(seen.send_replace(nodes)),
            Err(error) => {
                let store = members.store();
                tracing::debug!(store, %error, "this node could not be noted as being there");
            }
        }
        sleep(SAY_EVERY).await;
    }
}

async fn note_and_read(
    members: &Members,
    keys: &Keys,
    node: &CoordinatorNode,
) -> Result<Vec<SeenNode>, EtcdError> {
    let now = time_format::now();
    let value = NodeValue { node: node.clone(), seen_ms: now.0 };
    let value = serde_json::to_vec(&value).expect("a node can be written as JSON");
    let note = put(keys.node(&node.id), value, 0);
    members.attempt(|etcd| async move { etcd.run(vec![note]).await }).await?;
    let found = members.attempt(|etcd| read(etcd, keys.clone())).await?;
    let (long_gone, there): (Vec<&KeyValue>, Vec<&KeyValue>) =
        found.iter().partition(|it| ago(it, now).is_some_and(|ago| ago > FORGET_AFTER));
    if !long_gone.is_empty() {
        let forget: Vec<RequestOp> = long_gone.iter().map(|it| delete(it.key.clone())).collect();
        members.attempt(|etcd| async move { etcd.run(forget).await }).await?;
    }
    // A node of a later version may describe itself in another way.
    let seen = there.iter().filter_map(|it| {
        let NodeValue { node, .. } = serde_json::from_slice(&it.value).ok()?;
        Some(SeenNode::seen_before(node, ago(it, now)?))
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
