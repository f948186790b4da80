//! The words between the state machine of the link and its shell: when, which, what to do.

use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, PhaseTwoCall};

use crate::error::Error;

/// A point in time: the distance from when the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    /// The point `duration` later.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// A request, for as long as the link lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u64);

/// One attempt to connect and what came of it. Inputs of any but the current one are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// Why a connection was not made, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The coordinator does not accept this client.
    Unauthenticated(Arc<str>),
    /// Anything that another attempt may cure.
    Passing(Arc<str>),
}

impl Failure {
    pub(crate) fn reason(&self) -> &Arc<str> {
        match self {
            Self::Unauthenticated(reason) | Self::Passing(reason) => reason,
        }
    }
}

/// What the shell has to do or to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// Connect to the endpoint of this index.
    Dial { connection: ConnectionId, endpoint: usize },
    /// Drop the connection, or the attempt to make it.
    HangUp { connection: ConnectionId },
    /// The coordinator has greeted: requests flow.
    Greeted { hello: v1::HelloReply },
    /// The connection is lost, or was not made.
    Parted { failure: Failure, retry_at: Moment },
    /// A request has ended.
    Complete { id: RequestId, result: Result<Answer, Error> },
    /// Work for a resource of this process.
    PhaseTwo(PhaseTwoCall),
    /// The coordinator does not accept a resource.
    ResourcesRefused(v1::Rejection),
}
