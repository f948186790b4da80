//! The admin API.

mod key;
pub mod model;
