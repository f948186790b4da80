//! Two-phase commit on the databases: `XA` of MySQL and MariaDB, `PREPARE TRANSACTION` of
//! PostgreSQL.
//!
//! The database itself keeps a prepared transaction, with its row locks, until it is told the
//! decision; nothing is imaged or undone. What each of the databases' answers means is a pure
//! function, in `verdict`. A prepared branch never decides alone: whoever finds one asks the
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
mod name;
mod note;
mod phase_one;
mod phase_two;
#[cfg(feature = "postgres")]
mod postgres;
mod resource;
#[cfg(feature = "sqlite")]
mod sqlite;
mod sweep;
mod transaction;
mod verdict;

pub use database::XaDatabase;
pub use error::XaError;
pub use resource::{Xa, XaResource};
pub use sweep::Swept;
pub use transaction::XaTransaction;
pub(crate) use verdict::{Sweep, of_sweep};

/// What of it is pure. For the simulation, which has branches in databases of its own.
pub mod rules {
    pub use super::finish::Finished;
    pub use super::name::{BranchName, Node};
    pub use super::note::{Note, read};
    pub use super::phase_two::outcome;
    pub use super::verdict::{
        Answer, Phase, Sweep, Trace, Verdict, of_phase_two, of_prepare, of_sweep,
    };
}
