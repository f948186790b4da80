//! The processes of a scenario.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running program whose output is read. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program and appends what it reports as errors to the log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        without_configuration(&mut command);
        let log = File::options().create(true).append(true).open(log).context("opening a log")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let output = child.stdout.take().context("standard output is piped")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Waits for the next line of its output.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program ended with {} and has said nothing more", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for its end and returns the rest of its output.
    pub(crate) fn end(mut self) -> Result<(ExitStatus, String)> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        Ok((self.child.wait()?, rest))
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it where it is.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on after a stop.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(id, signal).with_context(|| format!("sending {signal}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

/// Returns the path of a program that is built beside this one.
pub(crate) fn sibling(name: &str) -> Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}

/// Removes the variables that the coordinator reads its configuration from.
pub(crate) fn without_configuration(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("HANDFAST_") {
            command.env_remove(name);
        }
    }
}
