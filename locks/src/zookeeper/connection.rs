//! The session with a ZooKeeper cluster, which is replaced after it has ended.

use std::time::Duration;

use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::candidate::LOCKS;
use super::options::ZooKeeperOptions;
use crate::error::BackendError;

#[derive(Debug)]
pub(super) struct ClusterConnection {
    options: ZooKeeperOptions,
    /// Shared by all requests. None before the first.
    client: Mutex<Option<Client>>,
}

impl ClusterConnection {
    pub(super) fn new(options: ZooKeeperOptions) -> Self {
        Self { options, client: Mutex::new(None) }
    }

    /// Returns the longest lease that the session allows.
    pub(super) fn lease_max(&self) -> Duration {
        self.options.lease_max
    }

    /// Returns the access rights of the nodes of locks.
    pub(super) fn acls(&self) -> Acls<'static> {
        self.options.acls()
    }

    /// Creates the folder of all locks, and checks that it belongs to this user.
    pub(super) async fn open_folder(&self) -> Result<(), BackendError> {
        let client = self.client().await?;
        if client.check_stat(LOCKS).await.map_err(failed)?.is_none() {
            let folder = CreateMode::Persistent.with_acls(self.acls());
            client.mkdir(LOCKS, &folder).await.map_err(failed)?;
        }
        let (acls, _) = client.get_acl(LOCKS).await.map_err(failed)?;
        if self.options.has_user() && acls.iter().any(|acl| acl.scheme() == "world") {
            return Err(BackendError::lasting(format!(
                "{LOCKS} is open to all users: it was created by clients without a user. Stop them \
                and delete it"
            )));
        }
        Ok(())
    }

    /// Returns the session that is alive, as far as this process knows, or begins another one.
    pub(super) async fn client(&self) -> Result<Client, BackendError> {
        // The mutex is held while connecting: all requests share a session, since nodes of another
        // one count for nothing.
        let mut registry = self.client.lock().await;
        if let Some(client) = registry.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        let wanted = session_of(self.options.lease_max);
        let connector = Client::connector().with_session_timeout(wanted).with_fail_eagerly();
        let connector = self.options.show_user(connector);
        let client = connector.connect(&self.options.cluster).await.map_err(failed)?;
        let granted = client.session_timeout();
        if granted < wanted {
            let (lease, wanted, granted) =
                (self.options.lease_max.as_millis(), wanted.as_millis(), granted.as_millis());
            return Err(BackendError::lasting(format!(
                "a lease of {lease} ms takes a session of {wanted} ms, and ZooKeeper grants \
                {granted} ms: set maxSessionTimeout, or take shorter leases"
            )));
        }
        Ok(registry.insert(client).clone())
    }
}

/// How long a session lives without a request: longer than a lease that was renewed by the last
/// one, even if the leader heard of that one late, through another server. ZooKeeper has whole
/// milliseconds.
fn session_of(lease: Duration) -> Duration {
    let session = (lease + lease / 3).as_millis();
    Duration::from_millis(u64::try_from(session).unwrap_or(u64::MAX))
}

pub(super) fn failed(error: Error) -> BackendError {
    if matches!(error, Error::NoAuth | Error::AuthFailed) {
        return BackendError::denied(format!(
            "ZooKeeper: {error}: the locks belong to another user, or to this one with another \
            password"
        ));
    }
    BackendError::passing("ZooKeeper failed", error)
}
