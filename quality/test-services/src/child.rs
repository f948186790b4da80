//! A child process that a test starts, kills, stops and waits for.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    /// Its end of file asks the child to end.
    stdin: Option<ChildStdin>,
}

impl ChildProcess {
    /// Starts a command. Its standard output is for the caller to read.
    ///
    /// # Errors
    /// Returns the system's error if it cannot be started.
    pub fn start(mut command: Command) -> Result<(Self, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        // Kept apart: waiting for a `Child` closes its standard input.
        let stdin = child.stdin.take();
        Ok((Self { child, stdin }, stdout))
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub async fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the process has ended")?;
        Ok(stdin.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Kills it as `kill -9` does and waits until it is gone.
    ///
    /// # Errors
    /// Returns an error if it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("killing a process")
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

    /// Sends any other signal.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid()?, signal).context("signalling a process")
    }

    /// Returns its id.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("the process has ended")?;
        Ok(Pid::from_raw(i32::try_from(id)?))
    }

    /// Returns how it ended, if it has.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for it to die at a crash point. Returns `false` if it has not within the time.
    ///
    /// # Errors
    /// Returns an error if it ends in another way.
    pub async fn crashed(&mut self, within: Duration) -> Result<bool> {
        let Ok(status) = tokio::time::timeout(within, self.child.wait()).await else {
            return Ok(false);
        };
        let status = status?;
        // A crash point ends its process with `abort`.
        let by_crash_point = status.signal() == Some(Signal::SIGABRT as i32);
        ensure!(by_crash_point, "the process ended by itself with {status}");
        Ok(true)
    }

    /// Waits for it to stop at a stop point.
    ///
    /// # Errors
    /// Returns an error if it does not, or ends.
    pub async fn stopped(&self, within: Duration) -> Result<()> {
        let id = Id::Pid(self.pid()?);
        // With `WNOWAIT` the state is only looked at: tokio collects the end of the same child.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let waited = tokio::task::spawn_blocking(move || waitid(id, flags));
        let status =
            tokio::time::timeout(within, waited).await.context("it does not stop")???;
        let has_stopped = matches!(status, WaitStatus::Stopped(_, Signal::SIGSTOP));
        ensure!(has_stopped, "it did not stop: {status:?}");
        Ok(())
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// Returns an error if it does not within the time.
    pub async fn exited(&mut self, within: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_elapsed) => bail!("the process has not ended after {within:?}"),
        }
    }
}
