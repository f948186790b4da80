//! Leases: keys that end with their owner.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use tonic::Code;

use crate::api::lease_client::LeaseClient;
use crate::api::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use crate::auth::Service;
use crate::client::EtcdClient;
use crate::error::{EtcdError, failed};

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedLease {
    /// Its id.
    pub id: i64,
    /// How long it lives at least without being kept alive, counted from a moment before the
    /// request was sent. etcd may have made it longer than was asked for.
    pub duration: Duration,
}

impl EtcdClient {
    /// Grants a lease that lives at least this long without being kept alive. etcd counts whole
    /// seconds.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn grant_lease(&self, duration: Duration) -> Result<GrantedLease, EtcdError> {
        let seconds = duration.as_millis().div_ceil(1000).try_into().unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        let grant =
            |service: Service| async move { LeaseClient::new(service).lease_grant(request).await };
        let granted = self.call(grant).await?.into_inner();
        let duration = Duration::from_secs(granted.ttl.try_into().unwrap_or_default());
        Ok(GrantedLease { id: granted.id, duration })
    }

    /// Keeps leases alive, all in one stream. Returns for each lease whether it is still alive.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn keep_alive(&self, leases: &[i64]) -> Result<Vec<bool>, EtcdError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let requests: Vec<_> = leases.iter().map(|id| LeaseKeepAliveRequest { id: *id }).collect();
        let keep = |service: Service| {
            let requests = stream::iter(requests.clone());
            async move { LeaseClient::new(service).lease_keep_alive(requests).await }
        };
        let answers = self.call(keep).await?;
        // etcd answers in the order of the requests. Its end of the stream is not waited for.
        let answers: Vec<_> = answers.into_inner().take(leases.len()).collect().await;
        // For a lease that has ended it answers with a duration of 0.
        let alive = answers.into_iter().map(|answer| Ok(answer.map_err(failed)?.ttl > 0));
        let alive: Vec<bool> = alive.collect::<Result<_, EtcdError>>()?;
        if alive.len() < leases.len() {
            return Err(EtcdError::Ended { what: "leases" });
        }
        Ok(alive)
    }

    /// Ends a lease, and with it its keys.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let request = LeaseRevokeRequest { id: lease };
        let revoke = |service: Service| async move {
            match LeaseClient::new(service).lease_revoke(request).await {
                Ok(_) => Ok(()),
                Err(status) if status.code() == Code::NotFound => Ok(()),
                Err(status) => Err(status),
            }
        };
        self.call(revoke).await
    }
}
