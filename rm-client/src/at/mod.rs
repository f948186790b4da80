//! AT mode: ordinary SQL in a global transaction.
//!
//! Each write is planned before it runs, its rows are read before and after (the images), and the
//! images go into `undo_log` in the same local transaction. `plan` decides how, from text alone.

mod begin;
pub(crate) mod captured;
mod catalogue;
mod commit;
mod compound;
pub(crate) mod crash_point;
pub(crate) mod database;
mod dirty;
mod emit;
mod error;
mod executor;
mod image;
mod lasting;
mod local;
mod locks;
mod migrate;
#[cfg(feature = "mysql")]
mod mysql;
mod phase_two;
#[cfg(feature = "postgres")]
mod postgres;
mod referring;
mod replay;
mod resource;
mod restore;
mod rollback;
mod running;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod survey;
mod transaction;
mod undo;
mod undo_table;
mod value;
mod work;

pub(crate) use handfast_rm_core::plan::Dialect;

pub(crate) use captured::Captured;
pub(crate) use crash_point::crash_point;
pub use database::AtDatabase;
pub(crate) use database::{Backend, execute, rows};
pub use error::AtError;
pub(crate) use error::with_causes;
pub(crate) use migrate::migrate;
pub use resource::{At, AtResource};
pub use transaction::AtTransaction;
