//! Locks of client libraries in Java: Redisson's on Redis and Curator's on ZooKeeper.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::builds::{built, maven_package, sources};

const REDISSON: &str = "4.7.0";
const CURATOR: &str = "5.9.0";

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockClient {
    /// Redisson's `RLock`.
    Redisson,
    /// Curator's `InterProcessMutex`.
    Curator,
}

impl LockClient {
    /// Fetches both libraries, and builds the program with them.
    ///
    /// # Errors
    /// If Java or Maven is missing, or Maven fails.
    pub fn build() -> Result<()> {
        let versions = [("redisson.version", REDISSON), ("curator.version", CURATOR)];
        let flags = versions.map(|(name, value)| format!("-D{name}={value}"));
        maven_package(&sources("lock-clients"), &flags, &built_clients()?)
    }

    /// Returns its lock's name, with the version of the library.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Redisson => format!("Redisson {REDISSON}, RLock"),
            Self::Curator => format!("Curator {CURATOR}, InterProcessMutex"),
        }
    }

    /// Returns the command that runs its clients on a server: a URL of Redis, or a cluster of
    /// ZooKeeper.
    ///
    /// # Errors
    /// If this program is not in a target folder, or a path cannot be part of a class path.
    pub fn command(self, flags: &[&str], server: &str) -> Result<Command> {
        let built = built_clients()?;
        let mut java = Command::new("java");
        let path = [built.join("locks.jar"), built.join("libraries/*")];
        java.args(flags).arg("-cp").arg(env::join_paths(path)?);
        java.args(["handfast.locks.LockClients", self.word(), server]);
        Ok(java)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::Curator => "curator",
        }
    }
}

fn built_clients() -> Result<PathBuf> {
    built("lock-clients")
}
