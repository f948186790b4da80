//! Participants under a real coordinator: their questions and the order of these, and the effects
//! of the death of each side.
//!
//! The processes that die are this program, started as a child process: see `child`.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod actor;
mod asked;
#[path = "../at_faults/child.rs"]
mod child;
mod client;
#[path = "../at_faults/coordinator.rs"]
mod coordinator;
mod hanging;
mod killed;
mod vault;
