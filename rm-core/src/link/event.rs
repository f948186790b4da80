//! The types between the state machine of the link and its driver: times, identities, things to do.

use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, PhaseTwoCall};

use super::error::RequestError;

/// A point in time: the time since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// Returns the point `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Identifies a request for as long as the link lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Identifies one attempt to connect, and the connection that results from it. Several attempts may
/// be under way; the first that is greeted becomes the connection, and inputs of all others are
/// ignored from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Where a coordinator may be: an endpoint, and one of the addresses of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialTarget {
    /// The index of the endpoint.
    pub endpoint: usize,
    /// The index of the address. If the name has fewer addresses by the time it is dialled, the
    /// index wraps around.
    pub address: usize,
}

/// Why a connection was not made, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionFailure {
    /// The coordinator does not accept this client.
    Unauthenticated(Arc<str>),
    /// Any other failure: another attempt may succeed.
    Passing(Arc<str>),
}

impl ConnectionFailure {
    /// Returns the text of the failure.
    #[must_use]
    pub fn reason(&self) -> &Arc<str> {
        match self {
            Self::Unauthenticated(reason) | Self::Passing(reason) => reason,
        }
    }
}

/// Something that the driver of the protocol has to do or to report.
#[derive(Debug)]
pub enum Event {
    /// Connect to this target, beside the attempts that are under way.
    Dial {
        /// The attempt.
        connection: ConnectionId,
        /// The endpoint and address to dial.
        target: DialTarget,
    },
    /// Drop the connection, or the attempt to make it.
    HangUp {
        /// The connection or attempt.
        connection: ConnectionId,
    },
    /// The coordinator has greeted: requests flow.
    Greeted {
        /// The attempt that has become the connection.
        connection: ConnectionId,
        /// The greeting.
        hello: v1::HelloReply,
    },
    /// One of several attempts has failed, and the others go on.
    AttemptFailed {
        /// The reason; a refusal by a coordinator, if one has refused this client meanwhile.
        failure: ConnectionFailure,
    },
    /// The connection is lost, or was not made at any target.
    Disconnected {
        /// The reason.
        failure: ConnectionFailure,
        /// When the next attempt is due.
        retry_at: Moment,
    },
    /// A request has ended.
    Complete {
        /// The request.
        id: RequestId,
        /// The answer, or why there is none.
        result: Result<Answer, RequestError>,
    },
    /// A call for a resource of this process.
    PhaseTwo(PhaseTwoCall),
    /// The coordinator does not accept a resource, which is dropped.
    ResourceRefused {
        /// The resource.
        resource: v1::Resource,
        /// The reason.
        refusal: v1::Rejection,
    },
}
