//! The processes that tests start: private servers, coordinators and child processes.
//!
//! Servers get free ports and keep their data in a temporary directory. All are gone afterwards,
//! also when the process that started them is killed. Durability is real (every commit is synced),
//! so that tests meet the timing that users meet; memory is small. A server can be killed, stopped
//! and started again on its data. Installing missing programs is not done here.
//!
//! The feature `harness` adds what depends on the coordinator's code: coordinators in the test's
//! own process and in its children, a client of the admin API, and one that calls tools. `xtask`
//! and the interoperation tests do without it: they must build without the coordinator, and know
//! its binary alone.

#[cfg(feature = "harness")]
mod child;
mod coordinator;
mod etcd;
mod guard;
mod mariadb;
mod nats;
mod piped_process;
mod postgres;
mod probe;
mod process;
mod programs;
mod rabbitmq;
mod redis;
#[cfg(feature = "harness")]
mod role;
mod server;
mod server_directory;
#[cfg(feature = "harness")]
mod signed_certificate;
#[cfg(feature = "harness")]
mod tool_client;
#[cfg(feature = "harness")]
mod until;
mod wire;
mod zookeeper;

#[cfg(feature = "harness")]
pub use child::ChildProcess;
pub use coordinator::CoordinatorProcess;
#[cfg(feature = "harness")]
pub use coordinator::{
    AdminClient, ChildCoordinator, ClusterNode, ClusterStore, EmbeddedCoordinator, cluster_config,
};
pub use nix::sys::signal::Signal;
pub use piped_process::{PipedProcess, Pipes, without_configuration};
pub use process::free_address;
pub use programs::Programs;
#[cfg(feature = "harness")]
pub use role::{Role, RoleProcess, WAIT_LIMIT, report, run_role};
pub use server::{DatabaseServer, ServerKind};
pub use server_directory::ServerDirectory;
#[cfg(feature = "harness")]
pub use signed_certificate::SignedCertificate;
#[cfg(feature = "harness")]
pub use tool_client::{ToolAnswer, ToolClient};
#[cfg(feature = "harness")]
pub use until::{ASK_EVERY, until, until_some};
pub use wire::Wire;
