//! TCC mode on real databases under a real coordinator: the ends of branches, alone and beside AT
//! branches, and the effects of the death of each side at each crash point. Afterwards every action
//! was confirmed or cancelled, once.
//!
//! The processes that die are this program, started as a child process: see `child`.

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
