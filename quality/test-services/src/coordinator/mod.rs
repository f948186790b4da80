//! Coordinators for tests: the program `handfast` as a process, a child process of the test
//! program, one inside the test, and several on one database. Each can be killed and started again
//! on its records and ports.

#[cfg(feature = "harness")]
mod admin;
#[cfg(feature = "harness")]
mod child;
#[cfg(feature = "harness")]
mod cluster;
#[cfg(feature = "harness")]
mod embedded;
mod log;
mod process;

#[cfg(feature = "harness")]
pub use admin::AdminClient;
#[cfg(feature = "harness")]
pub use child::ChildCoordinator;
#[cfg(feature = "harness")]
pub(crate) use child::{ROLE, run};
#[cfg(feature = "harness")]
pub use cluster::{ClusterNode, ClusterStore, cluster_config};
#[cfg(feature = "harness")]
pub use embedded::EmbeddedCoordinator;
pub use process::CoordinatorProcess;
