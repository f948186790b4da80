//! Consumes events, so that each takes effect once: the steps of `outbox/inbox.rs`.

use std::sync::Arc;

use super::ClientProcess;
use crate::model::database::DatabaseError;
use crate::model::values::{Event, RowVersion};
use crate::workload::events::{target_database, target_row};
use crate::world::{MS, SECOND};

/// The pauses between attempts.
const PAUSE_MIN: u64 = 20 * MS;
const PAUSE_MAX: u64 = 5 * SECOND;

impl ClientProcess {
    /// Consumes the events of every outbox until the workload is closed.
    pub(super) async fn consume(self: Arc<Self>) {
        let outboxes = self.installation.databases.len();
        while !self.installation.workload.is_closed() {
            for outbox in 0..outboxes {
                self.drain(outbox).await;
            }
            self.world.sleep(self.world.between(50 * MS, SECOND)).await;
        }
    }

    /// Consumes the events of one outbox while there are any.
    async fn drain(self: &Arc<Self>, outbox: usize) {
        while let Ok(Some((tag, event))) = self.installation.broker.next(outbox).await {
            self.apply_with_retries(outbox, event).await;
            self.crash_point("before-acknowledge").await;
            if self.installation.broker.acknowledge(outbox, tag).await.is_err() {
                return;
            }
        }
    }

    /// Applies an event, until it succeeds.
    async fn apply_with_retries(self: &Arc<Self>, outbox: usize, event: Event) {
        let mut pause = PAUSE_MIN;
        while let Err(error) = self.apply(outbox, event).await {
            self.world.log(self.owner(), || format!("event not received: {error:?}"));
            self.world.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Inserts the event into the inbox and applies it, in one local transaction.
    async fn apply(self: &Arc<Self>, outbox: usize, event: Event) -> Result<(), DatabaseError> {
        let databases = &self.installation.databases;
        let local = databases[target_database(outbox, databases.len())].begin().await?;
        if local.insert_inbox(event.id).await? {
            let row = target_row(outbox, event.key);
            let before = local.lock_row(row).await?;
            let after = RowVersion { value: before.value + event.units, writer: None };
            local.update(row, after).await?;
        }
        local.commit().await
    }
}
