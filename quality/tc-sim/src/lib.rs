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

mod judge;
mod model;
mod plan;
mod process;
mod random;
mod run;
mod workload;
mod world;

pub use judge::oracle::Violation;
pub use plan::{BadPlan, Fault, Faults, Mode, Plan};
pub use run::{Modes, Outcome, run, run_logged, shrink};
