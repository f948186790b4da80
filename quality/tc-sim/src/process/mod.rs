//! The simulated processes: coordinators, which run the product's code, and services.

pub(crate) mod client;
pub(crate) mod installation;
mod outside;
pub(crate) mod server;
