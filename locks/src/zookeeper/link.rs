//! The session with a ZooKeeper cluster, and another one after it has ended.

use std::time::Duration;

use tokio::sync::Mutex;
use zookeeper_client::{Client, Error};

use crate::error::BackendError;

#[derive(Debug)]
pub(super) struct Link {
    cluster: String,
    lease_max: Duration,
    /// Shared by all requests; none before the first.
    client: Mutex<Option<Client>>,
}

impl Link {
    pub(super) fn new(cluster: &str, lease_max: Duration) -> Self {
        Self { cluster: cluster.to_owned(), lease_max, client: Mutex::new(None) }
    }

    /// The longest lease that its session bears.
    pub(super) fn lease_max(&self) -> Duration {
        self.lease_max
    }

    /// The session that is alive, as far as is known here.
    pub(super) async fn client(&self) -> Result<Client, BackendError> {
        let mut kept = self.client.lock().await;
        if let Some(client) = kept.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        let wanted = session_of(self.lease_max);
        let connector = Client::connector().with_session_timeout(wanted).with_fail_eagerly();
        let client = connector.connect(&self.cluster).await.map_err(failed)?;
        let granted = client.session_timeout();
        if granted < wanted {
            let (lease, wanted, granted) =
                (self.lease_max.as_millis(), wanted.as_millis(), granted.as_millis());
            return Err(BackendError::lasting(format!(
                "a lease of {lease} ms takes a session of {wanted} ms, and ZooKeeper grants \
                {granted} ms: set maxSessionTimeout, or take shorter leases"
            )));
        }
        Ok(kept.insert(client).clone())
    }
}

/// How long a session lives without a request: longer than a lease that was renewed by the last
/// one, also if the leader heard of that one late, through another server. In whole milliseconds,
/// as ZooKeeper has it.
fn session_of(lease: Duration) -> Duration {
    let session = (lease + lease / 3).as_millis();
    Duration::from_millis(u64::try_from(session).unwrap_or(u64::MAX))
}

pub(super) fn failed(error: Error) -> BackendError {
    BackendError::passing("ZooKeeper failed", error)
}
