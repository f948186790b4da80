//! One server: started, waited for, stopped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};

use crate::interrupt::Interrupts;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
const PROBE_EVERY: Duration = Duration::from_millis(50);
const LOG_LINES_SHOWN: usize = 30;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    stop: Signal,
    log: PathBuf,
}

impl Server {
    /// Starts the server in a process group of its own, so that a Ctrl-C at the terminal leaves it
    /// to xtask. `stop` is the signal for a fast orderly shutdown.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        log: &Path,
        stop: Signal,
    ) -> Result<Self> {
        write_output_to(command, log)?;
        let child = command.process_group(0).spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child, stop, log: log.to_owned() })
    }

    /// The operating system's id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `probe` says that the server answers.
    pub(crate) fn wait_ready(
        &mut self,
        interrupts: &Interrupts,
        probe: impl Fn() -> bool,
    ) -> Result<()> {
        let started = Instant::now();
        while !probe() {
            interrupts.check()?;
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.name, last_lines(&self.log));
            }
            if started.elapsed() > READY_WITHIN {
                bail!("{} does not answer:\n{}", self.name, last_lines(&self.log));
            }
            thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(self.stop);
        let asked = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if asked.elapsed() > STOPPED_WITHIN {
                self.signal(Signal::SIGKILL);
                let _ = self.child.wait();
                return;
            }
            thread::sleep(PROBE_EVERY);
        }
    }
}

/// The account that a server runs under; `None` for our own.
///
/// Servers refuse root, so as root another account is needed: the distribution's own for that
/// server, or `nobody`.
pub(crate) fn account(preferred: &str) -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in [preferred, "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("running as root, and there is neither an account {preferred} nor nobody")
}

/// Makes a folder that the account owns.
pub(crate) fn make_folder(folder: &Path, account: Option<&User>) -> Result<()> {
    fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    if let Some(user) = account {
        chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// A command that runs under the account.
pub(crate) fn command_as(program: &Path, account: Option<&User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    if let Some(user) = account {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Runs a set-up step; what it says is shown only if it fails.
pub(crate) fn run_step(command: &mut Command, log: &Path) -> Result<()> {
    write_output_to(command, log)?;
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}:\n{}", last_lines(log));
    }
    Ok(())
}

/// A port of the loopback interface that nobody listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn write_output_to(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| log.display().to_string())?;
    command.stdout(file.try_clone()?).stderr(file);
    Ok(())
}

fn last_lines(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
