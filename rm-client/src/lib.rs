//! Skeleton.

#[doc(hidden)]
pub mod at;
