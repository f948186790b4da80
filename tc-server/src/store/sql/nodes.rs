//! The nodes that share the store. Each writes a row from time to time and reads those of the
//! others, so that an operator sees which are there. When all of them read a later layout of the
//! tables, that is used. Nothing else is decided by it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::micros;
use super::schema::{FIRST_LAYOUT, KnownLayout, LAYOUT};
use crate::store::{CoordinatorNode, FORGET_AFTER, NODES_MAX, SAY_EVERY, SeenNode};

/// A node by its own words, in its row.
#[derive(Serialize, Deserialize)]
struct Described<Node> {
    #[serde(flatten)]
    node: Node,
    /// The latest layout of the tables that it reads.
    #[serde(default = "first_layout")]
    layout: u64,
}

fn first_layout() -> u64 {
    FIRST_LAYOUT
}

/// Returns what this node says of itself.
pub(super) fn describe(node: &CoordinatorNode) -> serde_json::Result<String> {
    serde_json::to_string(&Described { node, layout: LAYOUT })
}

/// Periodically notes that a node is there, and publishes which others are.
pub(super) async fn announce(
    database: SqlDatabase,
    id: String,
    node: Arc<str>,
    known_layout: Arc<KnownLayout>,
    seen: watch::Sender<Vec<SeenNode>>,
) {
    let mut slot = ConnectionSlot::new(database);
    loop {
        match note_and_read(&mut slot, &id, &node, &known_layout).await {
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
    known_layout: &KnownLayout,
) -> Result<Vec<SeenNode>, CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let namespace = Value::Text(&namespace);
    slot.execute(statements.note_node, &[namespace, Value::Text(id), Value::Text(node)]).await?;
    let after = Value::Number(micros(FORGET_AFTER));
    slot.execute(statements.forget_nodes, &[namespace, after]).await?;
    let values = [namespace, Value::Number(NODES_MAX.into())];
    let (mut nodes, mut layout) = (Vec::new(), LAYOUT);
    let rows = slot.fetch(statements.nodes, &values).await?;
    let are_all = u32::try_from(rows.len()).is_ok_and(|rows| rows < NODES_MAX);
    for mut row in rows {
        let (node, ago) = (row.text()?, row.signed()?);
        // A node of a later version may describe itself in another way, and reads this layout.
        if let Ok(Described { node, layout: reads }) = serde_json::from_str(&node) {
            let ago = Duration::from_micros(u64::try_from(ago).unwrap_or_default());
            nodes.push(SeenNode::seen_before(node, ago));
            layout = layout.min(reads);
        }
    }
    if are_all && layout == LAYOUT && !known_layout.may_compress() {
        known_layout.raise(slot).await?;
    }
    Ok(nodes)
}
