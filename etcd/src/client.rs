//! The connection to a cluster: members, tokens, and the requests that are answered at once.

use std::sync::Arc;

use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

use crate::api::kv_client::KvClient;
use crate::api::{CompactionRequest, Compare, RangeRequest, RequestOp, TxnRequest};
use crate::auth::{AuthToken, AuthTokens, Service, is_outdated};
use crate::error::{EtcdError, failed};
use crate::options::EtcdOptions;
use crate::range::{KeyRange, RangePage};
use crate::transaction::TransactionResult;

/// A cluster, by the addresses of some of its members. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    channel: Channel,
    auth_tokens: Option<Arc<AuthTokens>>,
}

impl EtcdClient {
    /// Makes a client whose requests each go to a member that is connected. Connects with the first
    /// request; must be called within a runtime.
    ///
    /// # Errors
    /// [`EtcdError::Options`] without a member, or for options that contradict each other.
    pub fn connect(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let endpoints = members(options)?;
        let channel = match &endpoints[..] {
            [only] => only.connect_lazy(),
            _ => Channel::balance_list(endpoints.into_iter()),
        };
        let auth_tokens = options.user.clone().map(AuthTokens::of).map(Arc::new);
        Ok(Self { channel, auth_tokens })
    }

    /// Makes a client for each member, for a caller that chooses among them itself.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_each(options: &EtcdOptions) -> Result<Vec<Self>, EtcdError> {
        let auth_tokens = options.user.clone().map(AuthTokens::of).map(Arc::new);
        let client = |member: &Endpoint| Self {
            channel: member.connect_lazy(),
            auth_tokens: auth_tokens.clone(),
        };
        Ok(members(options)?.iter().map(client).collect())
    }

    /// Runs a transaction: conditions, what is done if all hold, and what if not.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn transaction(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<TransactionResult, EtcdError> {
        let transaction = TxnRequest { compare, success, failure };
        let run = |service: Service| {
            let transaction = transaction.clone();
            async move { kv(service).txn(transaction).await }
        };
        Ok(TransactionResult::of(self.call(run).await?.into_inner()))
    }

    /// Runs steps without a condition, all at one time.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn run(&self, steps: Vec<RequestOp>) -> Result<TransactionResult, EtcdError> {
        self.transaction(Vec::new(), steps, Vec::new()).await
    }

    /// Reads the first keys of a range, in their order, as they were at that revision; with 0, as
    /// they are.
    ///
    /// # Errors
    /// [`EtcdError::Compacted`] if that revision is too old; see [`EtcdError`].
    pub async fn range(
        &self,
        range: &KeyRange,
        limit: i64,
        revision: i64,
    ) -> Result<RangePage, EtcdError> {
        let (key, range_end) = (range.from.clone(), range.to.clone());
        let request = RangeRequest { key, range_end, limit, revision, ..RangeRequest::default() };
        let read = |service: Service| {
            let request = request.clone();
            async move { kv(service).range(request).await }
        };
        let found = self.call(read).await?.into_inner();
        let revision = found.header.map(|header| header.revision).unwrap_or_default();
        Ok(RangePage { keys: found.kvs, revision, has_more: found.more })
    }

    /// Forgets how keys were before that revision, in the whole cluster.
    ///
    /// # Errors
    /// [`EtcdError::Compacted`] if it has been done; see [`EtcdError`].
    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision };
        let compact = |service: Service| async move { kv(service).compact(request).await };
        self.call(compact).await.map(drop)
    }

    /// Sends a request, with another token if this one is outdated: such a request was not carried
    /// out.
    pub(crate) async fn call<A, F>(
        &self,
        request: impl Fn(Service) -> F + Send,
    ) -> Result<A, EtcdError>
    where
        F: Future<Output = Result<A, Status>> + Send,
    {
        let service = |auth| InterceptedService::new(self.channel.clone(), auth);
        let Some(auth_tokens) = &self.auth_tokens else {
            return request(service(AuthToken::default())).await.map_err(failed);
        };
        let auth = auth_tokens.get(&self.channel, None).await?;
        match request(service(auth.clone())).await {
            Err(status) if is_outdated(&status) => {
                let auth = auth_tokens.get(&self.channel, Some(&auth)).await?;
                request(service(auth)).await.map_err(failed)
            }
            answer => answer.map_err(failed),
        }
    }
}

fn members(options: &EtcdOptions) -> Result<Vec<Endpoint>, EtcdError> {
    let endpoints = options.endpoints()?;
    if endpoints.is_empty() {
        let reason = "a cluster has at least one member".to_owned();
        return Err(EtcdError::Options { reason });
    }
    Ok(endpoints)
}

/// Takes answers of any size, as etcd's own clients do: what is in them has passed etcd's limits.
fn kv(service: Service) -> KvClient<Service> {
    KvClient::new(service).max_decoding_message_size(usize::MAX)
}
