//! A stock service with SeaORM: products, and the sales that take units of them.
//!
//! A request that carries an XID is a branch of its caller's global: if the global rolls back, the
//! sale is gone and the units are back. A request without one is a global of its own.

pub mod database;
pub mod entity;
mod service;

pub use service::{Stock, router};
