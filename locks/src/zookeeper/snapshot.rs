//! One read of the queue of a lock, and what follows from it for one request.

use zookeeper_client::{Client, Error, MultiWriteError, OneshotWatcher};

use super::candidate::{Candidate, NodeValue, folder};
use super::connection::failed;
use super::registry::LockNode;
use crate::backend::{AcquireRequest, AcquireResponse, LockMode, WAITER_HEARTBEAT};
use crate::error::BackendError;
use crate::name::Holder;
use crate::queue;

/// A queue as it was read for one request.
pub(super) struct QueueSnapshot<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a AcquireRequest,
    pub(super) candidates: Vec<Candidate>,
}

impl QueueSnapshot<'_> {
    /// Returns the modes of all candidates. Returns none if the queue has moved. The first
    /// candidate may have become a reader, which only its node says.
    pub(super) async fn modes(&self) -> Result<Option<Vec<LockMode>>, BackendError> {
        let mut modes: Vec<LockMode> =
            self.candidates.iter().map(|candidate| candidate.mode).collect();
        let is_other =
            |first: &&Candidate| first.id != self.request.id && first.mode == LockMode::Exclusive;
        if let Some(first) = self.candidates.first().filter(is_other)
            && self.request.mode != LockMode::Exclusive
        {
            let Some((text, _)) = text(self.client, first).await? else { return Ok(None) };
            if text.fencing_token.is_some() {
                modes[0] = LockMode::READ;
            }
        }
        Ok(Some(modes))
    }

    pub(super) fn check_permits(&self, ahead: &[LockMode]) -> Result<(), BackendError> {
        match queue::conflicting_permits(ahead.first().copied(), self.request.mode) {
            Some(other) => Err(BackendError::other_permits(other)),
            None => Ok(()),
        }
    }

    /// Returns the fencing token of the present shared holders, or of the first that will be one,
    /// and writes it down for later ones. Returns none if the queue has moved: the node that the
    /// token is taken from must be there and unchanged when it is written, or two holders at the
    /// same time would have different tokens.
    pub(super) async fn shared_fencing_token(
        &self,
        at: usize,
        own: &LockNode,
    ) -> Result<Option<i64>, BackendError> {
        let mode = self.candidates[at].mode;
        let beside =
            |(place, candidate): &(usize, &Candidate)| *place <= at || candidate.mode == mode;
        // A candidate behind this one may have been faster and hold the lock with the token of one
        // that has left. So those behind count as well as those ahead.
        let mut source = None;
        for (place, candidate) in self.candidates.iter().enumerate().take_while(beside) {
            let Some((text, version)) = text(self.client, candidate).await? else {
                return Ok(None);
            };
            if let Some(fencing_token) = text.fencing_token {
                source = Some((place, fencing_token, version));
                break;
            }
            if place == 0 {
                source = self
                    .made_by(candidate)
                    .await?
                    .map(|fencing_token| (place, fencing_token, version));
            }
        }
        let Some((place, fencing_token, version)) = source else { return Ok(None) };
        let text =
            NodeValue { fencing_token: Some(fencing_token), label: self.request.label.to_string() }
                .write();
        let mut write = self.client.new_multi_writer();
        if place != at {
            write.add_check_version(&self.candidates[place].path, version).map_err(failed)?;
        }
        write.add_set_data(&own.path, text.as_bytes(), None).map_err(failed)?;
        match write.commit().await {
            Ok(_) => Ok(Some(fencing_token)),
            Err(MultiWriteError::OperationFailed { .. }) => Ok(None),
            Err(MultiWriteError::RequestFailed { source }) => Err(failed(source)),
        }
    }

    async fn made_by(&self, candidate: &Candidate) -> Result<Option<i64>, BackendError> {
        let stat = self.client.check_stat(&candidate.path).await.map_err(failed)?;
        Ok(stat.map(|stat| stat.czxid))
    }

    /// Watches one of the candidates ahead. Returns none if it has gone or has become a reader.
    pub(super) async fn watch_one(
        &self,
        other: usize,
    ) -> Result<Option<OneshotWatcher>, BackendError> {
        match self.client.get_and_watch_data(&self.candidates[other].path).await {
            Ok((text, _, watcher)) => {
                let stays = self.request.mode == LockMode::Exclusive
                    || self.candidates[other].mode != LockMode::Exclusive
                    || NodeValue::read(&text).fencing_token.is_none();
                Ok(stays.then_some(watcher))
            }
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Watches the whole queue. Returns none if it has moved.
    pub(super) async fn watch_all(&self) -> Result<Option<OneshotWatcher>, BackendError> {
        let name = &self.request.name;
        match self.client.list_and_watch_children(&folder(name)).await {
            Ok((children, watcher)) => {
                Ok((Candidate::in_order(name, &children) == self.candidates).then_some(watcher))
            }
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the holder of the lock, or the candidate that is about to be.
    pub(super) async fn holder(&self) -> Result<Option<Holder>, BackendError> {
        match self.candidates.iter().find(|candidate| candidate.id != self.request.id) {
            Some(first) => holder(self.client, first).await,
            None => Ok(None),
        }
    }
}

pub(super) fn busy(holder: Option<Holder>) -> AcquireResponse {
    AcquireResponse::Busy { holder, retry_after: WAITER_HEARTBEAT }
}

/// Reads a node: its value, and its version. Returns none if it is gone.
async fn text(
    client: &Client,
    candidate: &Candidate,
) -> Result<Option<(NodeValue, i32)>, BackendError> {
    match client.get_data(&candidate.path).await {
        Ok((text, stat)) => Ok(Some((NodeValue::read(&text), stat.version))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

pub(super) async fn holder(
    client: &Client,
    first: &Candidate,
) -> Result<Option<Holder>, BackendError> {
    let text = text(client, first).await?;
    Ok(text.map(|(text, _)| Holder { id: first.id, label: text.label }))
}
