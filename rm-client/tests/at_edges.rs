//! Situations in which images must stay correct: cut-off statements, odd names, other settings,
//! changed tables.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod at;
mod edges;
