//! Named locks: what services lock beside their rows, by a name of their own, for a time.
//!
//! A *lease* is one acquisition of a named lock. It ends when it is released, when its time is up
//! without renewal, or with the global that owns it. Named locks have queues of their own, first
//! come, first served. A global that waits in one stands in the same wait-for graph as for rows
//! (`deadlock`): a cycle over rows and names is found like any other.
//! The coordinator does not tell a holder that its time is up. Holders know by themselves.
//!
//! LEASE: a named lock is granted only beside leases that leave room for it, and a lease that has
//! not ended is never forgotten, neither by time nor by a restart.

pub(crate) mod acquire;
mod barred;
pub(crate) mod end;
mod load;
pub(crate) mod named_locks;
pub(crate) mod owner;
pub(crate) mod table;
pub(crate) mod turn;
pub(crate) mod view;
