//! Faults of AT mode over real processes and real databases: clients, coordinators and connections
//! that die at the worst moment. Afterwards the rows are right, and nothing is left behind.
//!
//! The dying parts are this program again, as a child process; see `child`.

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
mod scene;
mod stopped_client;
