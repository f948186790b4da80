//! Deterministic simulation of Handfast: coordinators, services and databases in one process on
//! virtual time, from one seed.
//!
//! The core, the engine with its batching and DURABLE-FIRST, phase-two dispatch, the gRPC front end
//! behind its transport, the record codec, and the client's link protocol are the product's code.
//! The network, the store, time, the databases, the broker, and the parts of the client that need
//! sqlx or tokio are models; `process/client/mod.rs` lists which file stands for which. There is no
//! runtime, no socket and no real clock: the same seed gives the same run, line for line.
//!
//! Modules depend on each other in one direction, the later ones on the earlier ones:
//!
//! | module | contents |
//! | --- | --- |
//! | `random`, `plan` | chance, and what a run simulates |
//! | `world` | virtual time, tasks, the log |
//! | `model` | databases, broker, store and network, and what can be observed of them |
//! | `workload` | orders, transfers, sagas and events, and the audit of their result |
//! | `judge` | the ledger, and the invariants |
//! | `process` | coordinators and services |
//! | `run` | one run from start to end, faults, and shrinking |
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

pub use judge::Violation;
pub use plan::{BadPlan, Fault, Faults, Mode, Plan};
pub use run::{ModeCounts, Outcome, run, run_logged, shrink};
