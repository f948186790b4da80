//! The workspace's own programs, to be run by checks.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::interrupt::Interrupts;
use crate::test::cargo;

/// The programs of the workspace as its tests build them, so that nothing is left to build after
/// the tests. `cargo run --package` would build the dependencies of each with other features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs(());

impl Programs {
    /// Builds what is not built yet.
    pub(crate) fn build(interrupts: &Interrupts) -> Result<Self> {
        let mut build = cargo();
        build.args(["build", "--profile", "test", "--quiet", "--workspace", "--bins", "--tests"]);
        interrupts.run(&mut build)?;
        Ok(Self(()))
    }

    /// Those that the caller has built already.
    pub(crate) fn built() -> Self {
        Self(())
    }

    /// Builds one of them alone, from the parts that all have in common, and returns its path.
    pub(crate) fn build_one(interrupts: &Interrupts, name: &str) -> Result<PathBuf> {
        let mut build = cargo();
        build.args(["build", "--profile", "test", "--quiet", "--workspace", "--bin", name]);
        interrupts.run(&mut build)?;
        Self::path(name)
    }

    /// One of them, to be run.
    pub(crate) fn command(self, name: &str) -> Result<Command> {
        Ok(Command::new(Self::path(name)?))
    }

    /// They stand beside this program, wherever cargo has been told to build.
    fn path(name: &str) -> Result<PathBuf> {
        let own = env::current_exe()?;
        Ok(own.with_file_name(name).with_extension(env::consts::EXE_EXTENSION))
    }
}

/// Returns the command that builds and runs one of them alone, which is faster if none is built.
pub(crate) fn package(name: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", name, "--"]);
    command
}
