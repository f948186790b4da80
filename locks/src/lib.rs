//! Distributed locks: one API over several backends, a fencing token with every acquisition, and a
//! signal when a lock is lost.
//!
//! A lock with a lease is never proof: its holder may be paused for longer than the lease and then
//! go on. The proof is the *fencing token*: the resource refuses a token that is smaller than one
//! it has seen. Every acquisition carries a token, and [`Guard::claim`] installs it in the resource
//! before the first read.
//!
//! ```
//! use handfast_locks::{LockError, Locks, MemoryLocks};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = Locks::over(MemoryLocks::new()).start()?;
//! let guard = locks.lock("orders/42").await?;
//! println!("held with fencing token {}", guard.fencing_token());
//! println!("{:?}", guard.release().await?);
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows no coordinator and no global transaction, and it decides nothing at the
//! resource beyond comparing tokens. The coordinator's backend is in the crate `handfast`.

mod backend;
mod client;
mod clock;
mod driver;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "redis"))]
pub mod fencing;
mod guard;
mod machine;
mod memory;
mod metrics;
mod multi;
mod name;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "redis"))]
mod observed_holder;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod queue;
mod reentrant;
mod segmented;
mod semaphore;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod watches;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sql;

pub use backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, QueueMode,
    ReleaseRequest, ReleaseResponse, WAITER_HEARTBEAT, WAITER_TIMEOUT, WakeUp,
};
pub use client::{Locks, LocksBuilder};
pub use clock::Moment;
pub use error::{BackendError, LockError, LossReason, ReleaseOutcome};
pub use guard::{DowngradeError, Guard};
pub use memory::MemoryLocks;
pub use multi::Guards;
pub use name::{AcquisitionId, FencingToken, Holder, LockName};
pub use reentrant::ReentrantLocks;
pub use segmented::{Segment, SegmentVisit, SegmentedLock};
pub use semaphore::{Permit, Semaphore};

#[cfg(feature = "etcd")]
pub use etcd::EtcdLocks;
#[cfg(feature = "etcd")]
pub use handfast_etcd::EtcdOptions;
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

/// Compiles the Rust code of the page on locks and of the crate's README.
#[cfg(all(doctest, feature = "etcd", feature = "postgres", feature = "zookeeper"))]
mod pages {
    #[doc = include_str!("../../docs/locks.md")]
    mod locks {}
    #[doc = include_str!("../../locks/README.md")]
    mod readme {}
}
