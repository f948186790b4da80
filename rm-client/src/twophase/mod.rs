//! Two-phase commit on the databases: `XA` of MySQL and MariaDB, `PREPARE TRANSACTION` of
//! PostgreSQL.
//!
//! The database itself keeps a prepared transaction, with its row locks, until it is told the
//! decision; nothing is imaged or undone. What each of the databases' answers means is a pure
//! function, in `handfast_rm_core::two_phase`. A prepared branch never decides alone: whoever finds one asks the
//! coordinator.

mod control;
mod database;
mod emit;
mod error;
mod executor;
mod finish;
mod hold;
mod lease;
#[cfg(feature = "mysql")]
mod mysql;
mod phase_one;
mod phase_two;
#[cfg(feature = "postgres")]
mod postgres;
mod resource;
#[cfg(feature = "sqlite")]
mod sqlite;
mod sweep;
mod transaction;

pub use database::XaDatabase;
pub use error::XaError;
pub use resource::{Xa, XaResource};
pub use sweep::Swept;
pub use transaction::XaTransaction;
