//! The nodes that share the store. Each writes a row from time to time and reads those of the
//! others, so that an operator sees which are there. Nothing is decided by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::micros;
use crate::store::{FORGET_AFTER, NODES_MAX, SAY_EVERY, SeenNode};

/// Periodically notes that a node is there, and publishes which others are.
pub(super) async fn announce(
    database: SqlDatabase,
    id: String,
    node: Arc<str>,
    seen: watch::Sender<Vec<SeenNode>>,
) {
    let mut slot = ConnectionSlot::new(database);
    loop {
        match note_and_read(&mut slot, &id, &node).await {
            Ok(nodes) => drop(seen.send_replace(nodes)),
            Err(error) => {
                let store = &*slot.database().name;
                tracing::debug!(store, %error, "this node could not be noted as being there");
            }
        }
        sleep(SAY_EVERY).await;
    }
}

async fn note_and_read(
    slot: &mut ConnectionSlot,
    id: &str,
    node: &str,
) -> Result<Vec<SeenNode>, CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let namespace = Value::Text(&namespace);
    slot.execute(statements.note_node, &[namespace, Value::Text(id), Value::Text(node)]).await?;
    let after = Value::Number(micros(FORGET_AFTER));
    slot.execute(statements.forget_nodes, &[namespace, after]).await?;
    let values = [namespace, Value::Number(NODES_MAX.into())];
    let mut nodes = Vec::new();
    for mut row in slot.fetch(statements.nodes, &values).await? {
        let (node, ago) = (row.text()?, row.signed()?);
        // A node of a later version may describe itself in another way.
        if let Ok(node) = serde_json::from_str(&node) {
            let ago = Duration::from_micros(u64::try_from(ago).unwrap_or_default());
            nodes.push(SeenNode::seen_before(node, ago));
        }
    }
    Ok(nodes)
}
