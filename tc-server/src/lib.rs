//! The Handfast transaction coordinator as a library: everything around the core's decisions.

pub mod config;
