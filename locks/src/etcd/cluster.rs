//! An etcd cluster: its transactions, leases and watches. It does not know what the keys mean.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::api::compare::{CompareResult, CompareTarget, TargetUnion};
use super::api::kv_client::KvClient;
use super::api::lease_client::LeaseClient;
use super::api::range_request::{SortOrder, SortTarget};
use super::api::request_op::Request as Operation;
use super::api::response_op::Response;
use super::api::watch_client::WatchClient;
use super::api::watch_create_request::FilterType;
use super::api::watch_request::RequestUnion;
use super::api::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::auth::{AuthToken, AuthTokens, Service, failed, is_outdated};
use super::options::User;
use crate::error::BackendError;

/// Asks a member to end a stream when it knows no leader, as etcd's own clients do by
/// `WithRequireLeader`.
const REQUIRES_LEADER: &str = "hasleader";

/// A cluster, by the addresses of some of its members. Each request goes to one that is connected.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    channel: Channel,
    auth_tokens: Option<Arc<AuthTokens>>,
}

/// The keys from the first up to, and without, the second.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

/// The result of a transaction.
#[derive(Debug)]
pub(super) struct TransactionResult {
    /// Whether its conditions held.
    pub(super) succeeded: bool,
    /// The revision of the store afterwards.
    pub(super) revision: i64,
    answers: Vec<ResponseOp>,
}

/// Which changes are watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Every change.
    All,
    /// Only deletions of keys.
    Deletions,
}

impl Cluster {
    pub(super) fn new(endpoints: &[Endpoint], user: Option<User>) -> Result<Self, BackendError> {
        let channel = match endpoints {
            [] => return Err(BackendError::lasting("a cluster has at least one member")),
            [only] => only.connect_lazy(),
            _ => Channel::balance_list(endpoints.iter().cloned()),
        };
        Ok(Self { channel, auth_tokens: user.map(AuthTokens::of).map(Arc::new) })
    }

    /// Sends a request, with another token if this one is outdated: such a request was not carried
    /// out.
    async fn call<A, F>(&self, request: impl Fn(Service) -> F + Send) -> Result<A, BackendError>
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

    /// Runs a transaction: conditions, what is done if all hold, and what if not.
    pub(super) async fn transaction(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<TransactionResult, BackendError> {
        let transaction = TxnRequest { compare, success, failure };
        let run = |service: Service| {
            let transaction = transaction.clone();
            async move { KvClient::new(service).txn(transaction).await }
        };
        let done = self.call(run).await?.into_inner();
        let revision = done.header.map(|header| header.revision).unwrap_or_default();
        Ok(TransactionResult { succeeded: done.succeeded, revision, answers: done.responses })
    }

    /// Runs steps without a condition, all at one time.
    pub(super) async fn run(
        &self,
        steps: Vec<RequestOp>,
    ) -> Result<TransactionResult, BackendError> {
        self.transaction(Vec::new(), steps, Vec::new()).await
    }

    /// Grants a lease that lives at least this long without being kept alive. etcd counts whole
    /// seconds.
    pub(super) async fn grant_lease(&self, duration: Duration) -> Result<i64, BackendError> {
        let seconds = duration.as_millis().div_ceil(1000).try_into().unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        let grant =
            |service: Service| async move { LeaseClient::new(service).lease_grant(request).await };
        Ok(self.call(grant).await?.into_inner().id)
    }

    /// Keeps leases alive, all in one stream. Returns for each whether it had not ended.
    pub(super) async fn keep_alive(&self, leases: &[i64]) -> Result<Vec<bool>, BackendError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let requests: Vec<_> = leases.iter().map(|id| LeaseKeepAliveRequest { id: *id }).collect();
        let keep = |service: Service| {
            let requests = stream::iter(requests.clone());
            async move { LeaseClient::new(service).lease_keep_alive(requests).await }
        };
        let answers = self.call(keep).await?;
        let answers: Vec<_> = answers.into_inner().take(leases.len()).collect().await;
        let alive = answers.into_iter().map(|answer| Ok(answer.map_err(failed)?.ttl > 0));
        let alive: Vec<bool> = alive.collect::<Result<_, BackendError>>()?;
        if alive.len() < leases.len() {
            return Err(cut_off("the stream of leases has ended"));
        }
        Ok(alive)
    }

    /// Ends a lease, and with it its keys.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), BackendError> {
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

    /// Watches a range from this moment on. The watch stands when this returns. A watch from an
    /// earlier revision, as in etcd's own recipe, gets its events only every 100 ms. A member that
    /// is cut off from the others ends the watch: it would hear of nothing.
    pub(super) async fn watch(
        &self,
        range: Range,
        changes: Changes,
    ) -> Result<KeyWatch, BackendError> {
        let filters = match changes {
            Changes::All => Vec::new(),
            Changes::Deletions => vec![FilterType::Noput.into()],
        };
        let create = WatchCreateRequest { key: range.from, range_end: range.to, filters };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let watch = |service: Service| {
            // The end of the requests would be the end of the watch.
            let requests = stream::iter([create.clone()]).chain(stream::pending());
            let mut requests = Request::new(requests);
            requests.metadata_mut().insert(REQUIRES_LEADER, MetadataValue::from_static("true"));
            async move {
                let events = WatchClient::new(service).watch(requests).await?;
                let mut watched = KeyWatch { events: events.into_inner() };
                watched.next().await?;
                Ok::<_, Status>(watched)
            }
        };
        self.call(watch).await
    }
}

/// A watch of keys.
#[derive(Debug)]
pub(super) struct KeyWatch {
    events: Streaming<WatchResponse>,
}

impl KeyWatch {
    /// Returns at the next change, or at the end of the watch.
    pub(super) async fn changed(mut self) {
        // The waiter reads the queue next, and meets what ended the watch.
        let _ = self.next().await;
    }

    async fn next(&mut self) -> Result<(), Status> {
        match self.events.message().await? {
            Some(event) if !event.canceled => Ok(()),
            // A watch without permission is begun and ended, with a text alone.
            Some(event) if event.cancel_reason.contains("denied") => {
                Err(Status::unauthenticated(event.cancel_reason))
            }
            Some(event) => Err(Status::aborted(event.cancel_reason)),
            None => Err(Status::aborted("the watch has ended")),
        }
    }
}

impl TransactionResult {
    /// Returns what the n-th step found, in the order that the step asked for.
    pub(super) fn found(&mut self, step: usize) -> Vec<KeyValue> {
        let answer = self.answers.get_mut(step).and_then(|answer| answer.response.take());
        match answer {
            Some(Response::ResponseRange(range)) => range.kvs,
            Some(Response::ResponseDeleteRange(deleted)) => deleted.prev_kvs,
            Some(Response::ResponsePut(_)) | None => Vec::new(),
        }
    }
}

impl Range {
    pub(super) fn one(key: Vec<u8>) -> Self {
        let to = [&key[..], b"\0"].concat();
        Self { from: key, to }
    }
}

/// Makes a condition that holds if no key of the range was created after that revision. With 0, it
/// holds if there is none.
pub(super) fn none_since(range: &Range, revision: i64) -> Compare {
    let made = TargetUnion::CreateRevision(revision + 1);
    let (key, range_end) = (range.from.clone(), range.to.clone());
    compare(key, range_end, CompareResult::Less, CompareTarget::Create, made)
}

/// Makes a condition that holds if the key is as it was left at that revision.
pub(super) fn is_unchanged(key: Vec<u8>, revision: i64) -> Compare {
    let changed = TargetUnion::ModRevision(revision);
    compare(key, Vec::new(), CompareResult::Equal, CompareTarget::Mod, changed)
}

fn compare(
    key: Vec<u8>,
    range_end: Vec<u8>,
    result: CompareResult,
    target: CompareTarget,
    union: TargetUnion,
) -> Compare {
    let (result, target, target_union) = (result.into(), target.into(), Some(union));
    Compare { result, target, key, range_end, target_union }
}

pub(super) fn put(key: Vec<u8>, value: String, lease: i64) -> RequestOp {
    step(Operation::RequestPut(PutRequest { key, value: value.into_bytes(), lease }))
}

/// Deletes a key, and returns it.
pub(super) fn delete(key: Vec<u8>) -> RequestOp {
    let range_end = Vec::new();
    step(Operation::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true }))
}

/// Reads all keys of a range, the oldest first.
pub(super) fn all(range: &Range) -> RequestOp {
    read(range, SortOrder::Ascend, 0, 0)
}

/// Reads the oldest key of a range.
pub(super) fn first(range: &Range) -> RequestOp {
    read(range, SortOrder::Ascend, 1, 0)
}

/// Reads the youngest key of a range that was created before that revision.
pub(super) fn last_before(range: &Range, revision: i64) -> RequestOp {
    read(range, SortOrder::Descend, 1, revision - 1)
}

fn read(range: &Range, order: SortOrder, limit: i64, max_create_revision: i64) -> RequestOp {
    step(Operation::RequestRange(RangeRequest {
        key: range.from.clone(),
        range_end: range.to.clone(),
        limit,
        sort_order: order.into(),
        sort_target: SortTarget::Create.into(),
        max_create_revision,
    }))
}

fn step(request: Operation) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn cut_off(message: &str) -> BackendError {
    BackendError::passing(message, std::io::Error::from(std::io::ErrorKind::ConnectionReset))
}
