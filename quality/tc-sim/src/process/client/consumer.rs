//! Receives events, so that each takes effect once: the steps of `outbox/inbox.rs`.

use std::sync::Arc;

use super::ClientProcess;
use crate::model::database::{Cell, DatabaseError, Event};
use crate::workload::events::{database_of, row_of};
use crate::world::{MS, SECOND};

/// The pauses between attempts.
const PAUSE_MIN: u64 = 20 * MS;
const PAUSE_MAX: u64 = 5 * SECOND;

impl ClientProcess {
    /// Takes events from every outbox until there is no business any more.
    pub(super) async fn consume(self: Arc<Self>) {
        let outboxes = self.cluster.databases.len();
        while !self.cluster.closed() {
            for outbox in 0..outboxes {
                self.drain(outbox).await;
            }
            self.world.sleep(self.world.between(50 * MS, SECOND)).await;
        }
    }

    /// Takes the events of one outbox while there are any.
    async fn drain(self: &Arc<Self>, outbox: usize) {
        while let Ok(Some((tag, event))) = self.cluster.broker.next(outbox).await {
            self.until_done(outbox, event).await;
            self.crash_point("before-acknowledge").await;
            if self.cluster.broker.acknowledge(outbox, tag).await.is_err() {
                return;
            }
        }
    }

    /// Tries until the effect is there.
    async fn until_done(self: &Arc<Self>, outbox: usize, event: Event) {
        let mut pause = PAUSE_MIN;
        while let Err(error) = self.take_effect(outbox, event).await {
            self.world.log(self.owner(), || format!("event not received: {error:?}"));
            self.world.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One local transaction: the inbox, and the effect.
    async fn take_effect(
        self: &Arc<Self>,
        outbox: usize,
        event: Event,
    ) -> Result<(), DatabaseError> {
        let databases = &self.cluster.databases;
        let local = databases[database_of(outbox, databases.len())].begin().await?;
        if local.enter_inbox(event.id).await? {
            let row = row_of(outbox, event.key);
            let before = local.lock_row(row).await?;
            let after = Cell { value: before.value + event.units, writer: None };
            local.update(row, after).await?;
        }
        local.commit().await
    }
}
