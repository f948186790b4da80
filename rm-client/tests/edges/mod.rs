//! One file a subject.

mod names;
mod savepoints;
mod schema;
mod sessions;
mod unique;
