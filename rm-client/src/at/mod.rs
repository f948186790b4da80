//! AT mode: ordinary SQL in a global transaction.
//!
//! Each write is planned before it runs, its rows are read before and after (the images), and the
//! images go into `undo_log` in the same local transaction. `handfast_rm_core::plan` decides how,
//! from text alone.
//!
//! | module | what it does |
//! | --- | --- |
//! | `setup`, `resource` | makes a database a resource; the resource as applications see it |
//! | `counter` | columns that are only added to and taken from, as applications declare them |
//! | `executor` | the entry for statements: `sqlx::Executor`, one impl per database |
//! | `phase_one` | local transactions: statements with their images, registration, commit |
//! | `phase_two` | what the coordinator has decided: undo rows go, or rows go back |
//! | `resource_state` | what a resource, its local transactions and its phase two share |
//! | `running_branches` | branches that may still commit from here, and guard rows that bar them |
//! | `database_wait` | tells the coordinator of work that waits in a database |
//! | `guarded` | tables whose triggers refuse writes from outside to rows of undecided globals |
//! | `leftovers` | deletes what ended branches leave behind in the database |
//! | `kept_connections` | connections that stay with a resource between its branches |
//! | `undo` | images, the undo log, and its table |
//! | `database` | what PostgreSQL, MySQL and SQLite do each in their own way |
//! | `migrate` | makes the client tables of a database |
//! | `error` | the errors of AT mode beyond those of the database |
//! | `crash_point` | the places at which a test can end or stop the process |

mod counter;
pub(crate) mod crash_point;
pub(crate) mod database;
mod database_wait;
mod error;
mod executor;
pub(crate) mod guarded;
mod kept_connections;
mod leftovers;
mod migrate;
mod phase_one;
mod phase_two;
mod resource;
mod resource_state;
mod running_branches;
mod setup;
mod undo;

pub(crate) use handfast_rm_core::plan::Dialect;

pub use counter::Counter;
pub(crate) use crash_point::crash_point;
pub use database::AtDatabase;
pub(crate) use database::bound_query::BoundQuery;
pub(crate) use database::commit::{CommitError, commit};
pub(crate) use database::{Backend, execute, rows};
pub use error::AtError;
pub(crate) use error::with_causes;
pub(crate) use migrate::migrate;
pub use phase_one::AtTransaction;
pub use resource::AtResource;
pub use setup::At;
