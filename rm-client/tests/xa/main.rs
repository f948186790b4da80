//! Two-phase commit on real databases under a real coordinator: the ends of branches, and the
//! effects of the death of each side at each crash point. Afterwards no branch is prepared
//! anywhere.
//!
//! The processes that die are this program, started as a child process: see `child`.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

#[path = "../at/mod.rs"]
mod at;
mod by_hand;
#[path = "../at_faults/child.rs"]
mod child;
mod client;
#[path = "../at_faults/commit_wire.rs"]
#[expect(dead_code, reason = "the tests of AT mode use the rest")]
mod commit_wire;
#[path = "../at_faults/coordinator.rs"]
mod coordinator;
mod database;
mod ends;
mod events;
mod everything;
mod hold;
mod killed;
mod lost;
mod refused;
mod restarted;
mod scene;
mod sweep;
