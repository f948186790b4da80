//! The part of a queue that a request has read, and what follows from it.

use handfast_etcd::{Compare, is_unchanged};

use super::entry::{QueueEntry, key};
use crate::backend::{AcquireRequest, AcquireResponse, LockMode, WAITER_HEARTBEAT};
use crate::error::BackendError;
use crate::name::Holder;
use crate::queue;

/// The part of a queue that was read.
#[derive(Debug, Default)]
pub(super) struct QueueView {
    pub(super) entries: Vec<QueueEntry>,
    /// The revision of the store at the read. There are no keys before revision 1.
    pub(super) revision: i64,
}

impl QueueView {
    pub(super) fn modes(&self) -> Vec<LockMode> {
        self.entries.iter().map(|entry| entry.text.mode).collect()
    }

    pub(super) fn check_permits(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let first = self.entries.first().filter(|first| first.text.is_holder);
        match queue::conflicting_permits(first.map(|first| first.text.mode), request.mode) {
            Some(other) => Err(BackendError::other_permits(other)),
            None => Ok(()),
        }
    }

    pub(super) fn holder(&self) -> Option<Holder> {
        self.entries.first().and_then(QueueEntry::holder)
    }

    pub(super) fn busy(&self) -> AcquireResponse {
        AcquireResponse::Busy { holder: self.holder(), retry_after: WAITER_HEARTBEAT }
    }

    /// Returns the fencing token for a request whose turn it is, if it is not that of its own key:
    /// that of the present shared holders, or of the first that will be one. The key that it is
    /// taken from must not change until it is written, or two holders at the same time would have
    /// different tokens.
    pub(super) fn shared_fencing_token(
        &self,
        request: &AcquireRequest,
        conditions: &mut Vec<Compare>,
    ) -> Option<i64> {
        if request.mode == LockMode::Exclusive {
            return None;
        }
        let holds_shared =
            |entry: &&QueueEntry| entry.text.is_holder && entry.text.mode == request.mode;
        let source = self.entries.iter().find(holds_shared).or(self.entries.first())?;
        if source.id != request.id {
            conditions.push(is_unchanged(key(&request.name, source.id), source.changed));
        }
        Some(source.fencing_token().number())
    }
}
