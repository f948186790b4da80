//! Watches of keys.

use futures::stream::{self, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

use crate::api::watch_client::WatchClient;
use crate::api::watch_create_request::FilterType;
use crate::api::watch_request::RequestUnion;
use crate::api::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::auth::Service;
use crate::client::EtcdClient;
use crate::error::{EtcdError, failed};
use crate::range::KeyRange;

/// Asks a member to end a stream when it knows no leader, as etcd's own clients do by
/// `WithRequireLeader`.
const REQUIRES_LEADER: &str = "hasleader";

/// The changes that are watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Every change.
    All,
    /// Only deletions of keys.
    Deletions,
}

/// A watch of keys.
#[derive(Debug)]
pub struct KeyWatch {
    events: Streaming<WatchResponse>,
}

impl EtcdClient {
    /// Watches a range from this moment on. The watch stands when this returns. A watch from an
    /// earlier revision, as in etcd's own recipe, gets its events only every 100 ms. A member that
    /// is cut off from the others ends the watch: it would hear of nothing.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn watch(&self, range: KeyRange, changes: Changes) -> Result<KeyWatch, EtcdError> {
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
                // The first message says that the watch stands.
                watched.next_event().await?;
                Ok::<_, Status>(watched)
            }
        };
        self.call(watch).await
    }
}

impl KeyWatch {
    /// Returns at the next change, or at the end of the watch: a caller that reads the keys next
    /// meets what ended it.
    pub async fn changed(mut self) {
        let _ = self.next_event().await;
    }

    /// Returns at the next change.
    ///
    /// # Errors
    /// Returns the reason of the end of the watch.
    pub async fn next(&mut self) -> Result<(), EtcdError> {
        self.next_event().await.map_err(failed)
    }

    async fn next_event(&mut self) -> Result<(), Status> {
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
