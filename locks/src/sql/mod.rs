//! Locks in a table of a SQL database.
//!
//! One statement takes a lock, on the newest version of its row and by the database's clock. The
//! row stays forever, and with it the fencing token. The queue is a second table: a lock is granted
//! only to the waiter that has waited longest. This fairness may lag a moment behind, while mutual
//! exclusion is decided by the lock's row alone.
//!
//! All statements go over connections of their own, each in a transaction of its own, never in the
//! application's: a lock that is released with its transaction would be released before what it
//! protects is durable.

mod backend;
mod barred;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod notifications;
#[cfg(feature = "postgres")]
mod postgres;
mod shares;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "mysql")]
pub use self::mysql::MySqlLocks;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresLocks;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteLocks;
