//! The recipe of ZooKeeper's own documentation, by hand: a sequential node that ends with the
//! session, and a watch of the node ahead.

use std::time::Duration;

use anyhow::{Context, Result};
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// The length of the session, long enough for a busy machine.
const SESSION: Duration = Duration::from_secs(40);

/// A session.
#[derive(Debug)]
pub(crate) struct ByHand(Client);

impl ByHand {
    pub(crate) async fn connect(cluster: &str) -> Result<Self> {
        let client = Client::connector().with_session_timeout(SESSION).connect(cluster).await;
        Ok(Self(client.context("connecting to ZooKeeper")?))
    }

    /// The path of the node that holds the lock.
    pub(crate) async fn take(&self, name: &str) -> Result<String> {
        let folder = format!("/{name}");
        let own = self.join_queue(&folder).await?;
        loop {
            let mut line = self.0.list_children(&folder).await?;
            line.sort_unstable();
            let at = line.iter().position(|node| own.ends_with(node.as_str()));
            let at = at.context("the own node stands in line")?;
            let Some(ahead) = at.checked_sub(1) else { return Ok(own) };
            match self.0.get_and_watch_data(&format!("{folder}/{}", line[ahead])).await {
                Ok((_, _, watcher)) => drop(watcher.changed().await),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) async fn release(&self, node: &str) -> Result<()> {
        Ok(self.0.delete(node, None).await?)
    }

    async fn join_queue(&self, folder: &str) -> Result<String> {
        let (path, acls) = (format!("{folder}/lock-"), Acls::anyone_all());
        let ephemeral = CreateMode::EphemeralSequential.with_acls(acls);
        let made = match self.0.create(&path, b"", &ephemeral).await {
            Err(Error::NoNode) => {
                self.0.mkdir(folder, &CreateMode::Persistent.with_acls(acls)).await?;
                self.0.create(&path, b"", &ephemeral).await
            }
            made => made,
        };
        let (_, number) = made?;
        Ok(format!("{path}{number}"))
    }
}
