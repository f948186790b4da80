//! The simulated processes: coordinators and services.

pub(crate) mod client;
pub(crate) mod server;
