//! Processes that the dispatcher calls: their resources, and the sink that takes their calls.

use std::fmt;
use std::sync::Arc;

use handfast_core::Timestamp;

use super::call::{CallBatch, ResourceKey};

/// Receives the calls for a process, such as the send queue of its connection.
pub trait CallSink: fmt::Debug + Send + Sync + 'static {
    /// Takes calls, and must return at once. An undelivered call shows as the end of the connection
    /// or as a missing answer.
    fn put(&self, batch: CallBatch);
}

/// Recognizes resources whose id itself says where their calls go, so that no process registers
/// them.
pub trait ResourceMatcher: fmt::Debug + Send + Sync + 'static {
    /// Returns the number of calls taken at a time, over all resources together, or `None` if this
    /// matcher does not claim the resource.
    fn calls_max(&self, resource: &ResourceKey) -> Option<usize>;
}

/// A process that connects.
#[derive(Clone, Debug)]
pub struct NewProcess {
    /// For a native client: unique per process life, and the same after a reconnect. For a client
    /// of Seata: unique per connection, and after a reconnect the same except for the port at its
    /// end. Stored with the branches that the process registers.
    pub client_id: Arc<str>,
    /// The application it belongs to.
    pub application: Arc<str>,
    /// Library name and version.
    pub agent: Arc<str>,
    /// Its network address.
    pub peer: Arc<str>,
}

/// A resource as a process registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredResource {
    /// Id and mode.
    pub key: ResourceKey,
    /// Product, host and database, for display. `None` if the text that the process sent may be
    /// something else that must stay private: such a resource is not listed before it has calls.
    pub label: Option<Arc<str>>,
}

/// A connected process, for operators.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// Its identity.
    pub process: NewProcess,
    /// When it connected.
    pub since: Timestamp,
    /// The resources it has registered, possibly cut to a limit.
    pub resources: Vec<RegisteredResource>,
    /// The number of resources before the limit.
    pub resource_count: usize,
    /// Calls sent to it and not answered.
    pub in_flight: usize,
}
