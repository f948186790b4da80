//! Global locks on rows: the table of holders, the queues, and the requests that wait in them.
//!
//! Table and waiters together are `RowLocks`, which knows no global. The rules of waiting that need
//! both (`queue`) are a part of the wing of the globals.

pub(crate) mod queue;
pub(crate) mod row_key;
pub(crate) mod row_locks;
mod slot;
pub(crate) mod table;
pub(crate) mod waiters;
