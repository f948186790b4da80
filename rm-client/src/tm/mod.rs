//! The TM: begins globals, decides them, and tells how they ended.
//!
//! It knows nothing of branches: those join through the ambient [context](crate::current_xid).

mod error;
mod global;
mod new_transaction;
mod propagation;

pub use error::{EndError, RollbackCause, TransactionError};
pub use global::Global;
pub use new_transaction::{NewTransaction, Transaction};
pub use propagation::Propagation;
