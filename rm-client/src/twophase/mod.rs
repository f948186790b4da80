//! Two-phase commit on the databases: `XA` of MySQL and MariaDB, `PREPARE TRANSACTION` of
//! PostgreSQL.
//!
//! The database itself keeps a prepared transaction, with its row locks, until the decision comes;
//! nothing is imaged or undone. The meaning of each of the databases' answers is a pure function,
//! in `handfast_rm_core::two_phase`. A prepared branch is never ended without the coordinator's
//! word.

mod branch_handler;
mod control;
mod database;
mod emit;
mod error;
mod executor;
mod finish;
mod held_sessions;
#[cfg(feature = "mysql")]
mod mysql;
mod phase_one;
mod pooled_connection;
#[cfg(feature = "postgres")]
mod postgres;
mod resource;
#[cfg(feature = "sqlite")]
mod sqlite;
mod state;
mod sweep;
mod transaction;

pub use database::XaDatabase;
pub use error::XaError;
pub use resource::{Xa, XaResource};
pub use sweep::Swept;
pub use transaction::XaTransaction;
