//! A folder of ZooKeeper nodes as locks use them: sequential ones, in the order of their names, and
//! watches that fire once.

use anyhow::{Context, Result};
use futures::FutureExt;
use zookeeper_client::{Acls, Client, CreateMode, OneshotWatcher};

/// A folder of one recipe, in one session.
pub(crate) struct Tree {
    client: Client,
    path: String,
}

/// A watch for the deletion or the creation of a node.
pub(super) struct NodeWatch(OneshotWatcher);

impl Tree {
    /// Makes an empty folder.
    pub(crate) async fn new(zookeeper: &str) -> Result<Self> {
        let client = Client::connect(zookeeper).await.context("connecting to ZooKeeper")?;
        let path = format!("/seed-defects-{:016x}", rand::random::<u64>());
        client.create(&path, &[], &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(Self { client, path })
    }

    /// Creates a node with the next number behind its name, which goes with the session.
    pub(super) async fn create_sequential(&self, prefix: &str) -> Result<String> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let path = format!("{}/{prefix}", self.path);
        let (_, number) = self.client.create(&path, &[], &options).await?;
        Ok(format!("{prefix}{number}"))
    }

    pub(super) async fn create(&self, name: &str) -> Result<()> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.client.create(&format!("{}/{name}", self.path), &[], &options).await?;
        Ok(())
    }

    /// Returns the nodes in the order of their names.
    pub(super) async fn children(&self) -> Result<Vec<String>> {
        let mut children = self.client.list_children(&self.path).await?;
        children.sort();
        Ok(children)
    }

    /// Returns whether the node is there, and a watch for its end. A node that is not there is
    /// watched for its creation, which for a sequential node never comes.
    pub(super) async fn exists(&self, name: &str) -> Result<(bool, NodeWatch)> {
        let path = format!("{}/{name}", self.path);
        let (stat, watch) = self.client.check_and_watch_stat(&path).await?;
        Ok((stat.is_some(), NodeWatch(watch)))
    }

    /// Returns whether the watch has fired: ZooKeeper sends the event before it answers later
    /// requests.
    pub(super) async fn has_fired(&self, watch: NodeWatch) -> Result<bool> {
        self.children().await?;
        Ok(watch.0.changed().now_or_never().is_some())
    }

    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        Ok(self.client.delete(&format!("{}/{name}", self.path), None).await?)
    }

    /// Deletes the folder.
    pub(super) async fn close(self) -> Result<()> {
        for name in self.children().await? {
            self.delete(&name).await?;
        }
        Ok(self.client.delete(&self.path, None).await?)
    }
}

/// Returns the node just ahead of a node.
pub(super) fn predecessor(children: &[String], own: &str) -> Option<String> {
    children.iter().rev().find(|child| child.as_str() < own).cloned()
}
