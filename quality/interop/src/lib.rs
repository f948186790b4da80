//! The Java client of Apache Seata for other programs: its build, its settings, its table; Seata
//! Server; and the locks of libraries in Java.
//!
//! `java/` is a Maven project with several programs. Scenarios for the client, and what is expected
//! of it in them, are in the program `handfast-interop`.

mod builds;
mod java_release;
mod java_settings;
mod lock_clients;
pub mod seata_server;
pub mod undo_log;

pub use builds::{built, maven_package, sources};
pub use java_release::JavaRelease;
pub use java_settings::JavaSettings;
pub use lock_clients::LockClient;
