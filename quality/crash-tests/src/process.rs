//! A child process: this program again with a part to play, started, killed, stopped, waited for.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Who plays the parts.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// The executable of this crate.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// A part of it, as a command whose words go to a log.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn part(&self, part: &str, log: &Path) -> Result<Command> {
        self.part_after(&[], part, log)
    }

    /// The same after the words of a program that starts another.
    ///
    /// # Errors
    /// When the log cannot be written.
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
        // The coordinator takes variables of this name for its configuration.
        for (name, _) in std::env::vars_os() {
            if is_configuration(&name) {
                command.env_remove(name);
            }
        }
        let log = File::options().create(true).append(true).open(log);
        command.stderr(log.context("opening a log")?);
        Ok(command)
    }
}

fn is_configuration(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("HANDFAST_")
}

/// A running child. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its end asks the child to end.
    stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts it. What it tells on standard output is for the caller.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Result<(Self, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        // Kept apart, for waiting for a process closes its standard input.
        let stdin = child.stdin.take();
        Ok((Self { child, stdin }, stdout))
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the process has ended")?;
        Ok(stdin.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("killing a process")
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends any other signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid()?, signal).context("signalling a process")
    }

    /// Its id.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("the process has ended")?;
        Ok(Pid::from_raw(i32::try_from(id)?))
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for it to die at a crash point. False: the time was over before.
    ///
    /// # Errors
    /// When it ended in another way.
    pub async fn crashed(&mut self, within: Duration) -> Result<bool> {
        let Ok(status) = tokio::time::timeout(within, self.child.wait()).await else {
            return Ok(false);
        };
        let status = status?;
        let by_crash_point = status.signal() == Some(Signal::SIGABRT as i32);
        ensure!(by_crash_point, "the process ended by itself with {status}");
        Ok(true)
    }

    /// Waits for it to stop at a point.
    ///
    /// # Errors
    /// When it does not, or ends.
    pub async fn stopped(&self, within: Duration) -> Result<()> {
        let id = Id::Pid(self.pid()?);
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
    /// When it does not.
    pub async fn exited(&mut self, within: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_elapsed) => bail!("the process has not ended after {within:?}"),
        }
    }
}
