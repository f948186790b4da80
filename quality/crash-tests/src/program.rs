//! The program of this crate, which runs every part of a stage: coordinator, service, participant.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use handfast_test_services::without_configuration;
use tokio::process::Command;

/// The executable that is started in a part.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Returns the program at this path, which must be the executable of this crate.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the command that runs a part and appends its standard error to a log.
    ///
    /// # Errors
    /// Returns an error if the log cannot be opened.
    pub fn part(&self, part: &str, log: &Path) -> Result<Command> {
        self.part_after(&[], part, log)
    }

    /// Returns the same command behind a starter: a program and its arguments that run another
    /// program.
    ///
    /// # Errors
    /// Returns an error if the log cannot be opened.
    pub fn part_after(&self, words: &[String], part: &str, log: &Path) -> Result<Command> {
        let mut command = match words {
            [] => Command::new(&self.0),
            [starter, rest @ ..] => {
                let mut command = Command::new(starter);
                command.args(rest).arg(&self.0);
                command
            }
        };
        command.arg(part);
        without_configuration(command.as_std_mut());
        let log = File::options().create(true).append(true).open(log);
        command.stderr(log.context("opening a log")?);
        Ok(command)
    }
}
