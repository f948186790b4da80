//! The decisions of the Handfast client, without IO.
//!
//! The twin of `handfast-core` on the side of the services: what the client library decides, as
//! functions and state machines that take the time and the answers of databases and coordinator as
//! arguments. `handfast` carries the decisions out.
//!
//! | module | decides |
//! | --- | --- |
//! | [`plan`] | which queries make a statement undoable, or why it is refused |
//! | [`link`] | what to send to the coordinator, when to dial, how a request ends |
//! | [`two_phase`] | what a database's answer to PREPARE, COMMIT or ROLLBACK means for a branch |
//! | [`fence`] | which operation of a branch may run |
//! | [`relay`] | which events of the outbox may be published, by which relay, in which order |
//!
//! No module reads a clock, a random source or the environment (PURE), and none knows sqlx, tokio
//! or a transport. It is no public interface: services use `handfast`, which re-exports what they
//! meet.
#![warn(missing_docs)]

pub mod fence;
pub mod link;
pub mod plan;
mod rejection;
pub mod relay;
mod status;
pub mod two_phase;
mod xid_text;

pub use rejection::{Rejection, RejectionDetail};
pub use status::{GlobalStatus, RollbackReason};
pub use xid_text::{MalformedXid, XidText};
