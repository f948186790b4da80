//! Participants without a library: their operations are URLs, and the coordinator calls them.
//!
//! The resource id of such a branch is a URL. Only URLs under a configured prefix are ever called:
//! a client that registers any other waits for a process to register it, like every resource. To
//! the dispatcher each prefix is one more process, which claims its resources instead of
//! registering them: order, pauses and restarts are as for connected processes.
//!
//! No redirect is followed and no proxy used; times and sizes are bounded (BOUNDED); each call is
//! signed with the secret of its prefix.

mod answered;
mod caller;
mod operation;
mod prefix;
mod process;
mod signature;

use std::time::Duration;

pub use answered::Answered;
pub use caller::{Caller, CallerError};
pub use prefix::{Prefix, PrefixError};
pub use signature::{Secret, SecretError, Signed};

pub(crate) use caller::NotNow;
pub(crate) use operation::Request;

/// Whom to call, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may be called. Nobody: nothing is called.
    pub participants: Vec<Participant>,
    /// How long one call may take, from its connection to the end of its answer. Too short: slow
    /// operations are called again while they run. Too long: a dead participant is asked rarely.
    pub timeout: Duration,
    /// The most that is read of an answer, in bytes. Too small: outputs of saga steps are lost.
    /// Too large: a bad participant fills the memory.
    pub response_bytes_max: usize,
    /// Calls of one participant at a time. Too few: they wait for each other. Too many: it is
    /// overrun after an outage.
    pub calls_max: usize,
}

/// Somebody who may be called.
#[derive(Clone, Debug)]
pub struct Participant {
    /// What its URLs begin with.
    pub prefix: Prefix,
    /// What its calls are signed with.
    pub secret: Secret,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            participants: Vec::new(),
            timeout: Duration::from_secs(10),
            response_bytes_max: 64 << 10,
            calls_max: 64,
        }
    }
}
