//! Global locks on rows: the table of holders, the queues, and the requests that wait in them.

pub(crate) mod held_locks;
pub(crate) mod queue;
pub(crate) mod row_key;
pub(crate) mod row_locks;
pub(crate) mod table;
pub(crate) mod waiters;
