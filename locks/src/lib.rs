//! Distributed locks that can be trusted: one API over several backends, a fencing token with every
//! acquisition, a signal when a lock is lost.
//!
//! A lock with a lease is never proof: its holder may be stopped for longer than the lease and go
//! on afterwards. What is proof is the *fence*: the resource refuses whoever comes with a smaller
//! token than it has seen. So every acquisition carries one, and [`Guard::claim`] installs it
//! before the first read.
//!
//! What this crate does not do: it knows no coordinator and no global transaction, and it decides
//! nothing at the resource beyond comparing tokens.

mod backend;
mod client;
mod clock;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "redis"))]
pub mod fencing;
mod figures;
mod guard;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod line;
mod machine;
mod memory;
mod name;
mod reentrant;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "redis"))]
mod seen;
mod segmented;
mod semaphore;
mod several;
mod shell;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod watches;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sql;

pub use backend::{
    Answer, Ask, Backend, Grade, Hold, Leave, Left, Place, Share, WAITER_ALIVE, WAITER_BEAT, Wake,
};
pub use client::{Locks, NewLocks};
pub use clock::Moment;
pub use error::{BackendError, LockError, Lost, Outcome};
pub use guard::Guard;
pub use memory::Memory;
pub use name::{Fence, Holder, LockName, Token};
pub use reentrant::ReentrantLocks;
pub use segmented::{Round, Segment, Segmented};
pub use semaphore::{Permit, Semaphore};
pub use several::Guards;

#[cfg(feature = "etcd")]
pub use etcd::{EtcdLocks, EtcdOptions};
#[cfg(feature = "redis")]
pub use redis::{RedisLocks, RedlockLocks};
#[cfg(feature = "mysql")]
pub use sql::MySqlLocks;
#[cfg(feature = "postgres")]
pub use sql::PostgresLocks;
#[cfg(feature = "sqlite")]
pub use sql::SqliteLocks;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperLocks, ZooKeeperOptions};

/// The Rust in the page on locks is compiled.
#[cfg(all(doctest, feature = "etcd", feature = "postgres", feature = "zookeeper"))]
mod pages {
    #[doc = include_str!("../../docs/locks.md")]
    mod locks {}
}
