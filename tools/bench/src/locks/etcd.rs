//! etcd's own lock: the service `v3lock` of its servers, which its clients call with a lease.

use anyhow::{Context, Result};
use tokio::sync::Mutex;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Longer than any run: no lease needs to be kept alive.
const LEASE_SECONDS: i64 = 3_600;

/// Clients of the service.
#[derive(Debug)]
pub(crate) struct V3Lock {
    channel: Channel,
    /// The leases that no lock uses: two locks with the same lease have the same owner.
    leases: Mutex<Vec<i64>>,
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Held {
    key: Vec<u8>,
    lease: i64,
}

impl V3Lock {
    /// Connects, with leases for this many locks at a time.
    pub(crate) async fn connect(url: &str, locks: u32) -> Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await?;
        let etcd = Self { channel, leases: Mutex::default() };
        for _ in 0..locks {
            let request = LeaseGrantRequest { ttl: LEASE_SECONDS };
            let granted: LeaseGrantResponse =
                etcd.call("/etcdserverpb.Lease/LeaseGrant", request).await?;
            etcd.leases.lock().await.push(granted.id);
        }
        Ok(etcd)
    }

    pub(crate) async fn take(&self, name: String) -> Result<Held> {
        let lease = self.leases.lock().await.pop().context("there is a lease for each client")?;
        let request = LockRequest { name: name.into_bytes(), lease };
        let locked: LockResponse = self.call("/v3lockpb.Lock/Lock", request).await?;
        Ok(Held { key: locked.key, lease })
    }

    pub(crate) async fn release(&self, held: Held) -> Result<()> {
        let request = UnlockRequest { key: held.key };
        let UnlockResponse {} = self.call("/v3lockpb.Lock/Unlock", request).await?;
        self.leases.lock().await.push(held.lease);
        Ok(())
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await?;
        let path = PathAndQuery::from_static(path);
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = client.unary(Request::new(request), path, codec).await;
        Ok(answer.context("calling etcd")?.into_inner())
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockResponse {}
