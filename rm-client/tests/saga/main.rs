//! Sagas of five steps on real databases: they end completed or compensated, whichever process
//! dies.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../at/mod.rs"]
mod at;
mod child;
mod course;
mod killed;
mod scene;
mod settled;
#[path = "../outbox/wired.rs"]
mod wired;
