//! The words between the state machine of the link and its shell: when, which, what to do.

use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, PhaseTwoCall};

use super::error::RequestError;

/// A point in time: the distance from when the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// The point `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// A request, for as long as the link lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One attempt to connect and what came of it. Several may be under way; the first that is greeted
/// is the connection, and inputs of any other are ignored from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Where a coordinator may be: an endpoint, and one of the addresses that its name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialTarget {
    /// The index of the endpoint.
    pub endpoint: usize,
    /// Which of its addresses, from 0. Where the name has fewer by then, they are counted round.
    pub address: usize,
}

/// Why a connection was not made, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The coordinator does not accept this client.
    Unauthenticated(Arc<str>),
    /// Anything that another attempt may cure.
    Passing(Arc<str>),
}

impl Failure {
    /// Returns the words of the failure.
    #[must_use]
    pub fn reason(&self) -> &Arc<str> {
        match self {
            Self::Unauthenticated(reason) | Self::Passing(reason) => reason,
        }
    }
}

/// What the shell has to do or to tell.
#[derive(Debug)]
pub enum Event {
    /// Connect to this place, beside what is under way.
    Dial {
        /// The attempt.
        connection: ConnectionId,
        /// Where.
        place: DialTarget,
    },
    /// Drop the connection, or the attempt to make it.
    HangUp {
        /// Which.
        connection: ConnectionId,
    },
    /// The coordinator has greeted: requests flow.
    Greeted {
        /// The attempt that is the connection from here on.
        connection: ConnectionId,
        /// What the coordinator said.
        hello: v1::HelloReply,
    },
    /// One of several attempts has failed, and the others go on.
    AttemptFailed {
        /// Why; if a coordinator has refused this client meanwhile, that.
        failure: Failure,
    },
    /// The connection is lost, or was not made at any place.
    Disconnected {
        /// Why.
        failure: Failure,
        /// When the next attempt is due.
        retry_at: Moment,
    },
    /// A request has ended.
    Complete {
        /// Which.
        id: RequestId,
        /// How.
        result: Result<Answer, RequestError>,
    },
    /// Work for a resource of this process.
    PhaseTwo(PhaseTwoCall),
    /// The coordinator does not accept a resource, which is left.
    ResourceRefused {
        /// Which one.
        resource: v1::Resource,
        /// Why.
        refusal: v1::Rejection,
    },
}
