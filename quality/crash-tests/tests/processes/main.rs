//! The shortened form of `cargo xtask crash`: each crash point once, each way to be away once, and
//! a mixed run on each pair of databases.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod clock;
mod disk;
mod hosts;
mod inside;
mod points;
mod random;
mod sagas;
mod silence;
mod stages;
