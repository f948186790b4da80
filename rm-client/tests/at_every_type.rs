//! Values of every column type are restored byte for byte by a rollback. After a commit they are
//! the same as without Handfast. A key names one row in all its spellings.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod at;
mod columns;
mod types;
