//! What the images must survive: cut-off statements, odd names, other settings, changed tables.

mod at;
mod edges;
