//! The process of a client. It can be killed, stopped where it is, and continued.

use std::fs::File;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running client. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

/// Standard input and standard output of a client.
pub(crate) type Pipes = (ChildStdin, ChildStdout);

impl Process {
    /// Starts a client and appends its standard error to the log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<(Self, Pipes)> {
        without_configuration(&mut command);
        let log = File::options().create(true).append(true).open(log).context("opening a log")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let stdin = child.stdin.take().context("standard input is piped")?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        Ok((Self { child }, (stdin, stdout)))
    }

    /// Kills it as `kill -9` does and waits until it is gone.
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

/// Removes the variables that the coordinator reads its configuration from.
pub(crate) fn without_configuration(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDFAST_") {
            command.env_remove(name);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}
