//! Participants without the client library: their operations are URLs, which the coordinator calls.
//!
//! The resource id of such a branch is a URL. Only URLs under a configured prefix are ever called.
//! A branch on any other URL waits for a process that registers it, like every resource. To the
//! dispatcher each prefix is one more process, which claims its resources instead of registering
//! them. Order, pauses and restarts are the same as for connected processes.
//!
//! No redirect is followed and no proxy is used. Times and sizes are limited (BOUNDED). Each call
//! is signed with the secret of its prefix.

mod client;

mod operation;
mod outcome;
mod prefix;
mod process;
mod signature;

use std::time::Duration;

pub use client::{HttpCaller, HttpCallerError};
pub use outcome::CallOutcome;
pub use prefix::{Prefix, PrefixError};
pub use signature::{Secret, SecretError, SignedRequest};

pub(crate) use client::{TryRefusal, with_causes};
pub(crate) use operation::OperationRequest;

/// The participants, and the limits of calls to them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The participants that may be called. If empty, nothing is called.
    pub participants: Vec<Participant>,
    /// How long one call may take, from its connection to the end of its answer. Too short: slow
    /// operations are called again while they run. Too long: a dead participant is retried rarely.
    pub timeout: Duration,
    /// The longest answer that is read, in bytes. Too small: outputs of saga steps are lost. Too
    /// large: a faulty participant fills the memory.
    pub response_bytes_max: usize,
    /// Calls to one participant at a time. Too few: they wait for each other. Too many: the
    /// participant is overrun after an outage.
    pub calls_max: usize,
}

/// A participant that may be called.
#[derive(Clone, Debug)]
pub struct Participant {
    /// The beginning of its URLs.
    pub prefix: Prefix,
    /// The secret with which calls to it are signed.
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
