//! The resource's half of a lock: it refuses a fencing token that is smaller than one it has seen.
//!
//! *Claim before the first read.* A resource that compares tokens only at the write accepts the
//! late write of an old holder as long as the next holder has not written: the next holder reads,
//! the old one writes, the next one writes, and a change is lost. So a holder first installs its
//! token. After that every older write fails, and only then does it read.
//!
//! - SQL: [`Guard::claim`](crate::Guard::claim) keeps one row per lock in the resource's own
//!   database, for everything that is written in the same transaction. [`FencedTable`] keeps the
//!   token in a column of the row itself.
//! - Redis: `FencedKey`, with the feature `redis`.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod claim;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod table;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use self::claim::{ClaimDatabase, claim};
#[cfg(feature = "redis")]
pub use self::redis::FencedKey;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use self::table::FencedTable;
