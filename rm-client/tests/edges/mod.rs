//! One file a subject.

mod found;
mod names;
mod savepoints;
mod schema;
mod sessions;
mod unique;
