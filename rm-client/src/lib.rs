//! Skeleton.
#![warn(missing_docs)]

#[doc(hidden)]
pub mod at;
mod context;
mod coordinator;
mod error;
mod link;
mod status;
mod xid;


pub use context::current_xid;
pub use error::{Error, Rejection, RejectionDetail};
pub use status::{GlobalStatus, RollbackReason};
pub use xid::Xid;
