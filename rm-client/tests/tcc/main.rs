//! TCC mode on real databases under a real coordinator: how branches end, alone and beside AT
//! branches, and what the death of each side at each point leaves. Afterwards every action was done
//! or taken back, once.
//!
//! The dying parts are this program again, as a child process; see `child`.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod action;
#[path = "../at/mod.rs"]
mod at;
#[path = "../at_faults/child.rs"]
mod child;
mod client;
#[path = "../at_faults/coordinator.rs"]
mod coordinator;
mod ends;
mod input;
mod killed;
mod mixed;
mod operator;
mod processes;
mod restarted;
mod scene;
mod stopped;
