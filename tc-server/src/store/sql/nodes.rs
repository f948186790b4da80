//! The nodes that share the store. Each writes a row from time to time, so that an operator sees
//! which are there. Nothing is decided by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::connection::{ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::micros;
use crate::store::{FORGET_AFTER, NODES_MAX, SAY_EVERY, SeenNode, StoreError};

/// Notes again and again that a node is there, for ever.
pub(super) async fn announce(database: SqlDatabase, id: String, node: Arc<str>) {
    let mut slot = ConnectionSlot::new(database);
    loop {
        if let Err(error) = note(&mut slot, &id, &node).await {
            let store = &*slot.database().name;
            tracing::debug!(store, %error, "this node could not be noted as being there");
        }
        sleep(SAY_EVERY).await;
    }
}

async fn note(slot: &mut ConnectionSlot, id: &str, node: &str) -> Result<(), CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let namespace = Value::Text(&namespace);
    slot.execute(statements.note_node, &[namespace, Value::Text(id), Value::Text(node)]).await?;
    let after = Value::Number(micros(FORGET_AFTER));
    slot.execute(statements.forget_nodes, &[namespace, after]).await.map(drop)
}

/// Returns the nodes that have been noted.
pub(super) async fn list(database: &SqlDatabase) -> Result<Vec<SeenNode>, StoreError> {
    let mut slot = ConnectionSlot::new(database.clone());
    read(&mut slot).await.map_err(|error| database.unusable(error.to_string()))
}

async fn read(slot: &mut ConnectionSlot) -> Result<Vec<SeenNode>, CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let values = [Value::Text(&namespace), Value::Number(NODES_MAX.into())];
    let mut nodes = Vec::new();
    for mut row in slot.fetch(statements.nodes, &values).await? {
        let (node, ago) = (row.text()?, row.signed()?);
        // A node of a later version may describe itself in another way.
        if let Ok(node) = serde_json::from_str(&node) {
            let seen_ago = Duration::from_micros(u64::try_from(ago).unwrap_or_default());
            nodes.push(SeenNode { node, seen_ago });
        }
    }
    Ok(nodes)
}
