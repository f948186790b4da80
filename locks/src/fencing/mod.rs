//! The other half of a lock: the resource refuses whoever comes with a smaller fencing token than
//! it has seen.
//!
//! *Claim before the first read.* A resource that only compares at the write accepts the late write
//! of an old holder as long as the new one has not written: he has read, the old one writes, he
//! writes, and a change is lost. So the first thing a holder does is to install his token; after
//! that every older write fails, and only then he reads.
//!
//! - SQL: [`Guard::claim`](crate::Guard::claim) keeps one row per lock in the resource's own
//!   database, for whatever is written in the same transaction. [`FencedTable`] keeps the token in
//!   a column of the row itself.
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
