//! Skeleton.
#![warn(missing_docs)]

#[doc(hidden)]
pub mod at;
mod connect;
mod context;
mod coordinator;
mod error;
mod link;
pub mod propagation;
mod status;
mod tm;
mod xid;

pub use at::{At, AtDatabase, AtError, AtResource, AtTransaction};
pub use connect::{Connect, Handfast};
pub use context::current_xid;
pub use error::{Error, Rejection, RejectionDetail};
pub use status::{GlobalStatus, RollbackReason};
pub use tm::{
    EndError, Global, NewTransaction, Propagation, RollbackCause, Transaction, TransactionError,
};
pub use xid::Xid;
