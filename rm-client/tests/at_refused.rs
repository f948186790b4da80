//! Rollbacks that only an operator can end: rows of other transactions refer to the rows that would
//! be deleted, or the database gives an error that repeating does not cure.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod at;
mod refused;
