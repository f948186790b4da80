//! Participants under a real coordinator: who is asked what and when, and what the death of each
//! side leaves.
//!
//! The dying parts are this program again, as a child process; see `child`.

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
