//! The options of a connection to a ZooKeeper cluster.

use std::fmt;
use std::time::Duration;

use zookeeper_client::{Acls, Connector};

/// The authentication scheme.
const DIGEST: &str = "digest";

/// The options of a connection to a ZooKeeper cluster: its addresses, the longest lease, the user.
///
/// ```no_run
/// use std::time::Duration;
///
/// use handfast_locks::{ZooKeeperLocks, ZooKeeperOptions};
///
/// # async fn connect() -> Result<ZooKeeperLocks, Box<dyn std::error::Error>> {
/// let options = ZooKeeperOptions::new("zk-1:2181,zk-2:2181", Duration::from_secs(20))
///     .user("orders", std::env::var("ZOOKEEPER_PASSWORD")?);
/// let locks = ZooKeeperLocks::connect_with(options).await?;
/// # Ok(locks)
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `ZooKeeperLocks::connect_with`"]
pub struct ZooKeeperOptions {
    pub(super) cluster: String,
    pub(super) lease_max: Duration,
    /// The name, and the name with the password.
    user: Option<(String, String)>,
}

impl ZooKeeperOptions {
    /// Makes options from the addresses of a cluster, as `zk1:2181,zk2:2181` or `zk1:2181/for/us`,
    /// for leases up to that long. The session lasts a third longer, which ZooKeeper must allow: up
    /// to 40 s unless its `maxSessionTimeout` says otherwise. A process that dies holds its locks
    /// for as long.
    pub fn new(cluster: impl Into<String>, lease_max: Duration) -> Self {
        Self { cluster: cluster.into(), lease_max, user: None }
    }

    /// Sets the user, by the scheme `digest`. Only this user can access the nodes of locks, so all
    /// clients must give the same user. ZooKeeper keeps no list of users: the first client to come
    /// creates the folder of the locks, and another password is another user.
    pub fn user(self, name: impl Into<String>, password: impl AsRef<str>) -> Self {
        let name = name.into();
        let secret = format!("{name}:{}", password.as_ref());
        Self { user: Some((name, secret)), ..self }
    }

    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    pub(super) fn show_user(&self, connector: Connector) -> Connector {
        match &self.user {
            Some((_, secret)) => connector.with_auth(DIGEST, secret.as_bytes()),
            None => connector,
        }
    }

    /// Returns the access rights of the nodes of locks.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.has_user() { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("ZooKeeperOptions")
            .field("cluster", &self.cluster)
            .field("lease_max", &self.lease_max)
            .field("user", &user)
            .finish()
    }
}
