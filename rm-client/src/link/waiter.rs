//! Where the answers to requests go.

use std::fmt;
use std::sync::Arc;

use handfast_proto::v1::server_message::Body as Answer;
use tokio::sync::oneshot;

use super::begin::BeginAnswer;
use crate::error::Error;
use crate::transient::UNKNOWN_XID;

/// A request's answer, or the reason why there is none.
pub(super) type Answered = Result<Answer, Error>;

/// Called when the coordinator does not know the global of a reported branch any more.
pub(crate) type OnLost = Box<dyn FnOnce() + Send>;

/// Where the answer to a request goes.
pub(super) enum Waiter {
    /// The future that made it.
    Caller(oneshot::Sender<Answered>),
    /// All that have to do with the global that was begun.
    Begin(Arc<BeginAnswer>),
    /// Nowhere, unless the coordinator has lost the last branch that was reported.
    LastBranch(OnLost),
}

impl Waiter {
    pub(super) fn send(self, answered: Answered) {
        match self {
            // The caller may be gone.
            Self::Caller(waiter) => drop(waiter.send(answered)),
            Self::Begin(answer) => answer.set(answered),
            Self::LastBranch(on_lost) => {
                if let Ok(Answer::Rejected(refusal)) = answered
                    && refusal.code == UNKNOWN_XID
                {
                    on_lost();
                }
            }
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller(_) => "Caller",
            Self::Begin(_) => "Begin",
            Self::LastBranch(_) => "LastBranch",
        })
    }
}
