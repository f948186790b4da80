//! The fence on real databases and on Redis: the whole decision table, pairs and larger numbers of
//! concurrent operations, every isolation level.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../at/mod.rs"]
mod at;
mod crowd;
mod enter;
mod model;
mod pairs;
mod purge;
mod redis;
mod run;
mod subject;
mod table;
