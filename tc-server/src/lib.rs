//! The Handfast transaction coordinator as a library: everything around the core's decisions.

pub mod admin;
pub mod audit;
pub mod cli;
pub mod config;
pub mod metrics;
pub mod moment;
pub mod security;
pub mod telemetry;
