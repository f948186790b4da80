//! The TM: begins globals, decides them, and reports how they ended.
//!
//! It does not know branches: they join through the ambient [context](crate::current_xid).

mod error;
mod global;
mod keyed;
mod new_transaction;
mod propagation;
mod retry;

pub use error::{EndError, RollbackCause, TransactionError};
pub use global::Global;
pub use new_transaction::{NewTransaction, Transaction};
pub use propagation::Propagation;
pub use retry::{RetriedTransaction, Retry};
