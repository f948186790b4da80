//! One server process: started, waited for, signalled, stopped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};

const STOPPED_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two questions. The standard library waits for a child without a limit or not
/// at all, and a server tells no other process that it answers.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(50);
pub(crate) const LOG_LINES_SHOWN: usize = 60;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stop: Signal,
}

impl Process {
    /// Starts the server in a process group of its own, so that a Ctrl-C at the terminal leaves
    /// it to this process. `stop` is the signal for a fast orderly shutdown.
    pub(crate) fn start(command: &mut Command, log: &Path, stop: Signal) -> Result<Self> {
        write_output_to(command, log)?;
        let child = command.process_group(0).spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { child, stop })
    }

    /// Returns the operating system's id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns how it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills it as `kill -9` does, without its children.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Signals it and its children, itself first: then no further child comes.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for child in children_of(self.child.id()) {
            // It may have ended meanwhile.
            let _ = kill(child, signal);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server that a test has paused would not act on the next signal.
        self.signal_all(Signal::SIGCONT);
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

/// Returns the processes whose parent this is, on systems that list them in `/proc`.
fn children_of(parent: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).map(Pid::from_raw).collect()
}

/// The fourth field of the status line; the second is a name in brackets that may hold anything.
fn parent_of(id: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the account that a server runs under; `None` for that of this process.
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

/// Makes a folder owned by the account.
pub(crate) fn make_folder(folder: &Path, account: Option<&User>) -> Result<()> {
    fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    if let Some(user) = account {
        chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// Returns a command that runs under the account.
pub(crate) fn command_as(program: &Path, account: Option<&User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    if let Some(user) = account {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Runs a set-up step. Its output is shown only if it fails.
pub(crate) fn run_step(command: &mut Command, log: &Path) -> Result<()> {
    write_output_to(command, log)?;
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}:\n{}", last_lines(log));
    }
    Ok(())
}

/// Returns a free port of the loopback interface; see [`free_address`].
pub(crate) fn free_port() -> Result<u16> {
    Ok(free_address(Ipv4Addr::LOCALHOST.into())?.port())
}

/// Returns an address with a port on which nothing listens, and which this function has not
/// returned before in this process: the program that got it earlier may not listen yet.
///
/// # Errors
/// Returns the system's error, as if the host has no such address.
pub fn free_address(of: IpAddr) -> Result<SocketAddr> {
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    loop {
        let address = TcpListener::bind((of, 0))?.local_addr()?;
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(address) {
            return Ok(address);
        }
    }
}

/// Appends, so that the log of a server that was killed is kept.
fn write_output_to(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| log.display().to_string())?;
    command.stdout(file.try_clone()?).stderr(file);
    Ok(())
}

/// Returns the end of a log, for an error message.
pub(crate) fn last_lines(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_known_by_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let children = children_of(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(children.contains(&Pid::from_raw(i32::try_from(child.id()).unwrap())));
    }
}
