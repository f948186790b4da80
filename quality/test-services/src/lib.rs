//! Private servers for tests: free ports, data in a temporary directory, all gone
//! afterwards, also when the one who started them is killed.
//!
//! Durability is real (every commit is synced), so that tests meet the timing that users meet;
//! memory is small. A server can be killed, stopped and started again on its data. Installing what
//! is missing is not done here.

mod etcd;
mod guard;
mod mariadb;
mod nats;
mod place;
mod postgres;
mod probe;
mod process;
mod programs;
mod rabbitmq;
mod redis;
mod server;
mod wire;
mod zookeeper;

pub use place::Place;
pub use programs::Programs;
pub use server::{DatabaseServer, Kind};
pub use wire::Wire;
