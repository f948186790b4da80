//! Locks in a table of a SQL database.
//!
//! One statement takes a lock, on the newest version of its row and by the database's clock; the
//! row stays for ever and with it the fence. The queue is a second table: whoever takes a lock sees
//! to it that nobody who is alive waits longer. That is fairness, which may be a moment behind;
//! mutual exclusion is the lock's row alone.
//!
//! All statements go over connections of their own, each in a transaction of its own, never in the
//! application's: a lock that is let go with its transaction would be let go before what it
//! protects is durable.

mod backend;
mod barred;
#[cfg(feature = "postgres")]
mod calls;
#[cfg(feature = "mysql")]
mod mysql;
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
