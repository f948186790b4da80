//! Named locks: what services lock beside their rows, by a name of their own, for a time.
//!
//! A *lease* is one acquisition of a named lock. It ends when it is let go, when its time is up
//! without renewal, or with the global that owns it. Named locks have queues of their own, first
//! come, first served. A global that waits in one stands in the same wait-for graph as for rows
//! (`deadlock`): a circle over rows and names is found like any other.
//! What the coordinator does not do: tell a holder that its time is up. Holders know by themselves.
//!
//! LEASE: a named lock is granted only beside leases that leave room for it, and a lease that has
//! not ended is never forgotten, neither by time nor by a restart.

mod ask;
mod barred;
mod end;
mod load;
mod of_global;
mod record;
mod table;
mod turn;
mod view;

pub use record::{LeaseId, LeaseRecord, LockHeld, LockShare, LockToken, NewLease};
pub use view::{NamedLockView, NamedLockWaiter};

pub(crate) use table::Leases;
