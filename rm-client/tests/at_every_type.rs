//! Values of every column type come back byte for byte after a rollback, and stand after a commit
//! as the same statements leave them without Handfast. Keys name one row however they are spelt.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod at;
mod columns;
mod types;
