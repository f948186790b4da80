//! SeaORM over Handfast, on real databases and with a real coordinator: a library of books, as
//! SeaORM's users write such things, in AT mode and by two-phase commit.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![expect(
    unreachable_pub,
    reason = "what SeaORM derives from a model is public, and so is the model"
)]

mod active_models;
mod nested;
mod options;
mod queries;
mod refusals;
mod repeatable;
mod schema;
mod stage;
mod streams;
mod types;
mod upserts;
mod whole;
