//! The workspace's own programs, to be run by checks.

use std::env;
use std::process::Command;

use anyhow::Result;

use crate::interrupt::Interrupts;
use crate::test::cargo;

/// The programs of the workspace as its tests build them, so that after those there is nothing to
/// build. By `cargo run --package` each has its dependencies with features of its own, and builds
/// them once more.
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

    /// One of them, to be run.
    pub(crate) fn command(self, name: &str) -> Result<Command> {
        // They stand beside this program, wherever cargo has been told to build.
        let own = env::current_exe()?;
        Ok(Command::new(own.with_file_name(name).with_extension(env::consts::EXE_EXTENSION)))
    }
}

/// One of them alone, which is built sooner where the others are not.
pub(crate) fn package(name: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", name, "--"]);
    command
}
