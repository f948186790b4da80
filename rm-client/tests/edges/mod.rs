//! One file a subject.

mod access;
mod broken;
mod found;
mod merged;
mod names;
mod reviewed;
mod reviewed_later;
mod savepoints;
mod schema;
mod sessions;
mod undone;
mod unique;
