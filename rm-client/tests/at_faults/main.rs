//! Faults of AT mode with real processes and databases: clients, coordinators and connections die
//! at the worst moments. Afterwards the rows are correct, and no undo row or lock is left.
//!
//! The processes that die are this program, started as a child process: see `child`.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

#[path = "../at/mod.rs"]
mod at;
mod child;
mod client;
mod commit_wire;
mod coordinator;
mod crossing;
mod cut_database;
mod dirty_write;
mod killed_client;
mod killed_coordinator;
mod killed_counter;
mod killed_guarded;
mod last_branch;
mod lost_branch;
mod replayed;
mod scene;
mod stopped_client;
