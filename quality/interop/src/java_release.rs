//! Releases of `seata-all`, built with Maven.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::builds::{built, maven_package, sources};

/// A release of the Java client.
#[derive(Clone, Copy, Debug)]
pub struct JavaRelease {
    /// The Java package, and Maven's group.
    package: &'static str,
    version: &'static str,
}

impl JavaRelease {
    /// The newest release.
    pub const NEWEST: Self = Self::new("org.apache.seata", "2.6.0");

    /// Returns the release of a version, whose classes are in a Java package.
    #[must_use]
    pub const fn new(package: &'static str, version: &'static str) -> Self {
        Self { package, version }
    }

    /// Returns its version.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Fetches the release, and builds the programs with it and these Maven profiles.
    ///
    /// # Errors
    /// If Java or Maven is missing, or Maven fails.
    pub fn build(&self, profiles: &[&str]) -> Result<()> {
        let properties = [("seata.package", self.package), ("seata.version", self.version)];
        let properties = properties.map(|(name, value)| format!("-D{name}={value}"));
        let profiles = profiles.iter().map(|profile| format!("-P{profile}"));
        let flags: Vec<String> = properties.into_iter().chain(profiles).collect();
        maven_package(&sources("java"), &flags, &self.built()?)
    }

    /// Returns the command that runs a program of the build with flags for `java`. The client's
    /// settings are in a folder. Arguments of the program may be added.
    ///
    /// # Errors
    /// If this program is not in a target folder, or a path cannot be part of a class path.
    pub fn command(&self, flags: &[&str], settings: &Path, program: &str) -> Result<Command> {
        let built = self.built()?;
        let path = [settings.to_owned(), built.join("worker.jar"), built.join("libraries/*")];
        let mut java = Command::new("java");
        java.args(flags).arg("-cp").arg(env::join_paths(path)?);
        java.arg(format!("handfast.interop.{program}"));
        Ok(java)
    }

    fn built(&self) -> Result<PathBuf> {
        built(&format!("java-{}", self.version))
    }
}
