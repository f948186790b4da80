//! Rollbacks that only a person can end: rows of others refer to what would be deleted, or the
//! database refuses in a way that no repetition cures.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod at;
mod refused;
