//! A process whose output is read, for programs without a runtime. It can be killed, stopped where
//! it is, and continued.

use std::fs::File;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct PipedProcess {
    child: Child,
}

/// Standard input and standard output of a process.
pub type Pipes = (ChildStdin, ChildStdout);

impl PipedProcess {
    /// Starts a program without configuration for a coordinator, and appends its standard error to
    /// the log.
    ///
    /// # Errors
    /// Returns an error if the log cannot be opened or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<(Self, Pipes)> {
        without_configuration(&mut command);
        let log = File::options().create(true).append(true).open(log).context("opening a log")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let stdin = child.stdin.take().context("standard input is piped")?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        Ok((Self { child }, (stdin, stdout)))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Kills it as `kill -9` does and waits until it is gone.
    ///
    /// # Errors
    /// Returns an error if it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on after a stop.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(id, signal).with_context(|| format!("sending {signal}"))
    }
}

impl Drop for PipedProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

/// Removes the variables that the coordinator reads its configuration from.
pub fn without_configuration(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDFAST_") {
            command.env_remove(name);
        }
    }
}
