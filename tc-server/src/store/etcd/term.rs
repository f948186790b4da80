//! One time in the lead: batches are stored in order, each behind the one before.
//!
//! The fence is the key `head`, the position of the newest batch. It is never deleted, and nothing
//! but the next batch or the next leader's mark changes it. A batch is stored in a transaction that
//! holds only if `head` is the batch before it, by number *and* epoch:
//!
//! ```text
//! if head = (my epoch, n - 1): journal/n = batch, head = (my epoch, n)
//! otherwise: read head
//! ```
//!
//! A condition that the number is free would be no fence: once a later leader has deleted the
//! batches that the records have, a leader that slept finds its number free again, and its batch
//! would be acknowledged and never read.
//!
//! The same transaction may be sent any number of times and takes effect once. If it does not hold
//! and `head` is this very batch, the answer to an earlier attempt was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handfast_core::{Change, Epoch};
use handfast_etcd::{
    Compare, EtcdClient, EtcdError, KeyRange, RequestOp, TransactionResult, is_value, put, read_all,
};
use tokio::sync::Mutex;

use super::batch::JournalBatch;
use super::checkpoint::Checkpoints;
use super::held_lease::HeldLease;
use super::keys::{Keys, Position};
use super::members::Members;
use crate::store::StoreError;

/// One time in the lead.
#[derive(Debug)]
pub(super) struct EtcdTerm {
    pub(super) epoch: Epoch,
    pub(super) lease: HeldLease,
    pub(super) members: Arc<Members>,
    pub(super) keys: Keys,
    /// The largest number that this process has acknowledged or read.
    pub(super) acknowledged: Arc<AtomicU64>,
    /// `None` while a batch is written, and forever after a batch that may or may not be stored:
    /// its number must not be used for another batch.
    pub(super) journal: Mutex<Option<JournalEnd>>,
}

/// The end of the journal.
#[derive(Debug)]
pub(super) struct JournalEnd {
    /// The number of the newest batch.
    pub(super) number: u64,
    pub(super) checkpoints: Checkpoints,
}

impl EtcdTerm {
    /// Stores a batch.
    pub(super) async fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let mut slot = self.journal.lock().await;
        let Some(mut journal) = slot.take().filter(|_| !self.lease.state.is_lost()) else {
            return Err(StoreError::LostLeadership);
        };
        // From here on an error, or a caller that goes away, leaves the slot empty and ends the
        // term.
        journal.checkpoints.make_room().await?;
        let position = Position { epoch: self.epoch, number: journal.number + 1 };
        let batch = JournalBatch::encode(position, changes).ok_or_else(|| self.too_large())?;
        self.store(&batch).await?;
        self.acknowledged.fetch_max(position.number, Ordering::Relaxed);
        journal.number = position.number;
        journal.checkpoints.push(batch);
        *slot = Some(journal);
        Ok(())
    }

    async fn store(&self, batch: &JournalBatch) -> Result<(), StoreError> {
        let Position { epoch, number } = batch.position;
        let before = Position { epoch, number: number - 1 };
        // No reader looks at a part before the batch's own key names it.
        for (at, part) in batch.parts().enumerate() {
            let write = put(self.keys.part(batch.position, at), part, 0);
            let mut written = self.run(before, vec![write]).await?;
            if !written.succeeded {
                return Err(self.lose(before, head(&mut written)));
            }
        }
        let steps = vec![
            put(self.keys.journal(number), batch.entry(), 0),
            put(self.keys.head(), batch.position.to_string(), 0),
        ];
        let mut written = self.run(before, steps).await?;
        if written.succeeded {
            return Ok(());
        }
        match head(&mut written) {
            Some(head) if head == batch.position => Ok(()),
            head => Err(self.lose(before, head)),
        }
    }

    /// Confirms that no other process leads.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        let at_least = Position { epoch: self.epoch, number: 0 };
        let read = self.read_head();
        let run = |etcd: EtcdClient| {
            let read = read.clone();
            async move { etcd.run(vec![read]).await }
        };
        match head(&mut self.until_answered(run).await?) {
            Some(head) if head.epoch == self.epoch => Ok(()),
            head => Err(self.lose(at_least, head)),
        }
    }

    /// Gives up the lead once the batch that is being written is stored, or the lease could have
    /// ended.
    pub(super) async fn resign(&self) {
        let ended = async { self.journal.lock().await.take() };
        let ended = tokio::time::timeout(self.lease.state.duration, ended).await;
        self.lease.revoke().await;
        drop(ended);
    }

    /// Runs steps that hold only if `head` is this position, and reads it otherwise.
    async fn run(
        &self,
        before: Position,
        steps: Vec<RequestOp>,
    ) -> Result<TransactionResult, StoreError> {
        let (guard, read) = (self.is_head(before), self.read_head());
        let run = |etcd: EtcdClient| {
            let (guard, steps, read) = (guard.clone(), steps.clone(), read.clone());
            async move { etcd.transaction(vec![guard], steps, vec![read]).await }
        };
        self.until_answered(run).await
    }

    fn is_head(&self, before: Position) -> Compare {
        is_value(self.keys.head(), before.to_string())
    }

    fn read_head(&self) -> RequestOp {
        read_all(&KeyRange::one(self.keys.head()))
    }

    async fn until_answered<T, F>(&self, request: impl Fn(EtcdClient) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        self.members.until_answered(request, || !self.lease.state.is_lost()).await
    }

    /// Ends the term, because the newest batch is not this leader's.
    fn lose(&self, expected: Position, head: Option<Position>) -> StoreError {
        self.lease.state.lose();
        match head {
            Some(head) if head >= expected => StoreError::LostLeadership,
            // Nothing but a restored etcd can be behind what this leader knows to be stored.
            head => {
                let acknowledged = self.acknowledged.load(Ordering::Relaxed);
                went_back(&self.members, acknowledged, head)
            }
        }
    }

    fn too_large(&self) -> StoreError {
        let reason = "a batch of more than 4 GiB".to_owned();
        StoreError::Unusable { store: self.members.store().to_owned(), reason }
    }
}

/// Makes the error of a store that has lost a batch.
pub(super) fn went_back(members: &Members, expected: u64, head: Option<Position>) -> StoreError {
    let reason = match head {
        Some(head) => format!("it had batch {expected}, and the newest one is {}", head.number),
        None => format!("it had batch {expected}, and has none"),
    };
    StoreError::WentBack { store: members.store().to_owned(), reason }
}

fn head(read: &mut TransactionResult) -> Option<Position> {
    read.found(0).first().and_then(|found| Position::read(&found.value))
}
