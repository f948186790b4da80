//! Events on real databases: emitted, held, relayed in order, received once.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../at/mod.rs"]
mod at;
mod brokers;
mod child;
mod emit;
mod held;
mod inbox;
mod killed;
mod operate;
mod order;
mod relays;
mod reported;
mod resolved;
mod scene;
mod silent;
mod starved;
mod streams;
mod wired;
