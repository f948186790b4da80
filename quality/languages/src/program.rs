//! The processes of a scenario.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus};

use anyhow::{Result, bail};
use handfast_test_services::PipedProcess;

/// A running program whose output is read. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Program {
    process: PipedProcess,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program and appends what it reports as errors to the log.
    pub(crate) fn start(command: Command, log: &Path) -> Result<Self> {
        let (process, (_, output)) = PipedProcess::start(command, log)?;
        Ok(Self { process, output: BufReader::new(output) })
    }

    /// Waits for the next line of its output.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program ended with {} and has said nothing more", self.process.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for its end and returns the rest of its output.
    pub(crate) fn end(mut self) -> Result<(ExitStatus, String)> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        Ok((self.process.wait()?, rest))
    }

    /// The process, to be killed or stopped where it is.
    pub(crate) fn process(&mut self) -> &mut PipedProcess {
        &mut self.process
    }
}

/// Returns the path of a program that is built beside this one.
pub(crate) fn sibling(name: &str) -> Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}
