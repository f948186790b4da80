//! One look at those who stand in line for a lock, and what follows from it for one of them.

use zookeeper_client::{Client, Error, MultiWriteError, OneshotWatcher};

use super::kept::Node;
use super::link::failed;
use super::stand::{Stand, Text, folder};
use crate::backend::{Answer, Ask, Share, WAITER_BEAT};
use crate::error::BackendError;
use crate::line;
use crate::name::Holder;

/// What one look at a lock is about.
pub(super) struct Look<'a> {
    pub(super) client: &'a Client,
    pub(super) ask: &'a Ask,
    pub(super) line: Vec<Stand>,
}

impl Look<'_> {
    /// How much everybody in line holds or wants; none if the line has moved. The first one may
    /// have become a reader, which only his node says.
    pub(super) async fn shares(&self) -> Result<Option<Vec<Share>>, BackendError> {
        let mut shares: Vec<Share> = self.line.iter().map(|stand| stand.share).collect();
        let is_other = |first: &&Stand| first.token != self.ask.token && first.share == Share::All;
        if let Some(first) = self.line.first().filter(is_other)
            && self.ask.share != Share::All
        {
            let Some((text, _)) = text(self.client, first).await? else { return Ok(None) };
            if text.fence.is_some() {
                shares[0] = Share::READ;
            }
        }
        Ok(Some(shares))
    }

    pub(super) fn check_parts(&self, ahead: &[Share]) -> Result<(), BackendError> {
        match line::other_parts(ahead.first().copied(), self.ask.share) {
            Some(other) => Err(BackendError::other_parts(other)),
            None => Ok(()),
        }
    }

    /// The fence of those who hold parts already, or that of the first of them who will; written
    /// down for those who come later. None if the line has moved: what it is taken from must be
    /// there and unchanged when it is written, or two beside one another would have two.
    pub(super) async fn fence_of_parts(
        &self,
        at: usize,
        own: &Node,
    ) -> Result<Option<i64>, BackendError> {
        let share = self.line[at].share;
        let beside = |(place, stand): &(usize, &Stand)| *place <= at || stand.share == share;
        let mut source = None;
        for (place, stand) in self.line.iter().enumerate().take_while(beside) {
            let Some((text, version)) = text(self.client, stand).await? else { return Ok(None) };
            if let Some(fence) = text.fence {
                source = Some((place, fence, version));
                break;
            }
            if place == 0 {
                source = self.made_by(stand).await?.map(|fence| (place, fence, version));
            }
        }
        let Some((place, fence, version)) = source else { return Ok(None) };
        let text = Text { fence: Some(fence), label: self.ask.label.to_string() }.write();
        let mut write = self.client.new_multi_writer();
        if place != at {
            write.add_check_version(&self.line[place].path, version).map_err(failed)?;
        }
        write.add_set_data(&own.path, text.as_bytes(), None).map_err(failed)?;
        match write.commit().await {
            Ok(_) => Ok(Some(fence)),
            Err(MultiWriteError::OperationFailed { .. }) => Ok(None),
            Err(MultiWriteError::RequestFailed { source }) => Err(failed(source)),
        }
    }

    async fn made_by(&self, stand: &Stand) -> Result<Option<i64>, BackendError> {
        let stat = self.client.check_stat(&stand.path).await.map_err(failed)?;
        Ok(stat.map(|stat| stat.czxid))
    }

    /// Watches that one of those in front; none if he has gone, or has become a reader.
    pub(super) async fn watch_one(
        &self,
        other: usize,
    ) -> Result<Option<OneshotWatcher>, BackendError> {
        match self.client.get_and_watch_data(&self.line[other].path).await {
            Ok((text, _, watcher)) => {
                let stays = self.ask.share == Share::All
                    || self.line[other].share != Share::All
                    || Text::read(&text).fence.is_none();
                Ok(stays.then_some(watcher))
            }
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Watches the whole line; none if it has moved.
    pub(super) async fn watch_all(&self) -> Result<Option<OneshotWatcher>, BackendError> {
        let name = &self.ask.name;
        match self.client.list_and_watch_children(&folder(name)).await {
            Ok((children, watcher)) => {
                Ok((Stand::in_order(name, &children) == self.line).then_some(watcher))
            }
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Who holds the lock, or is about to.
    pub(super) async fn holder(&self) -> Result<Option<Holder>, BackendError> {
        match self.line.iter().find(|stand| stand.token != self.ask.token) {
            Some(first) => holder(self.client, first).await,
            None => Ok(None),
        }
    }
}

pub(super) fn busy(holder: Option<Holder>) -> Answer {
    Answer::Busy { holder, look_again: WAITER_BEAT }
}

/// What a node says, and how often that has changed; none if it is gone.
async fn text(client: &Client, stand: &Stand) -> Result<Option<(Text, i32)>, BackendError> {
    match client.get_data(&stand.path).await {
        Ok((text, stat)) => Ok(Some((Text::read(&text), stat.version))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

pub(super) async fn holder(client: &Client, first: &Stand) -> Result<Option<Holder>, BackendError> {
    let text = text(client, first).await?;
    Ok(text.map(|(text, _)| Holder { token: first.token, label: text.label }))
}
