//! Deterministic simulation of Handfast: coordinators, services and databases in one process on
//! virtual time, from one seed.
//!
//! Real are the core, the engine with its batching and DURABLE-FIRST, phase-two dispatch, the gRPC
//! front end behind its transport, the record codec, and the client's link protocol. Modelled are
//! the network, the disk, time, the databases, and the parts of the client that need sqlx or tokio;
//! [`client`](self) says which file stands for which. There is no runtime, no socket and no real
//! clock: the same seed gives the same run, line for line.
//!
//! ```
//! use handfast_sim::{Plan, run};
//!
//! let outcome = run(&Plan::of_seed(1));
//! assert!(outcome.violations.is_empty());
//! ```

mod brief;
mod broker;
mod client;
mod cluster;
mod database;
mod effect;
mod fault;
mod invariant;
mod ledger;
mod local;
mod mode;
mod nemesis;
mod network;
mod oracle;
mod plan;
mod points;
mod purse;
mod random;
mod run;
mod saga;
mod server;
mod shrink;
mod store;
mod world;

pub use fault::{Fault, Faults};
pub use mode::Mode;
pub use oracle::Violation;
pub use plan::{BadPlan, Plan};
pub use run::{Modes, Outcome, run, run_logged};
pub use shrink::shrink;
