//! Ctrl-C, SIGTERM and hang-up end the running program and let every `Drop` do its work.
//!
//! The signals are handed to one waiting thread, so nothing of ours runs in a signal handler.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::say::say;

/// Knows whether a signal asked to stop, and passes it on to the programs that run.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts {
    caught: Arc<AtomicBool>,
    foreground: Arc<Mutex<Vec<Pid>>>,
}

impl Interrupts {
    /// Starts watching.
    pub(crate) fn watch() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("catching signals")?;
        let interrupts = Self { caught: Arc::default(), foreground: Arc::default() };
        let watcher = interrupts.clone();
        thread::spawn(move || {
            for _signal in signals.forever() {
                watcher.stop_foreground();
            }
        });
        Ok(interrupts)
    }

    /// Fails once a signal asked to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.caught.load(Ordering::SeqCst) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Returns when a signal asks to stop.
    pub(crate) fn wait(&self) {
        while self.check().is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs a program to its end; an unsuccessful one is an error.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let line = command_line(command);
        say(format_args!("$ {line}"));
        let status = self.run_for_status(command).with_context(|| line.clone())?;
        if !status.success() {
            bail!("{line}: {status}");
        }
        Ok(())
    }

    /// Runs a program to its end, as [`Self::run`], and returns its standard output.
    pub(crate) fn output(&self, command: &mut Command) -> Result<String> {
        let line = command_line(command);
        let (child, pid) =
            self.start(command.stdout(Stdio::piped())).with_context(|| line.clone())?;
        let output = child.wait_with_output();
        self.ended(pid)?;
        let output = output?;
        if !output.status.success() {
            bail!("{line}: {}", output.status);
        }
        String::from_utf8(output.stdout).context(line)
    }

    /// Runs a program to its end and returns what it printed. `None` if it was ended at the limit.
    pub(crate) fn output_within(
        &self,
        command: &mut Command,
        limit: Duration,
    ) -> Result<Option<Output>> {
        let (child, pid) = self.start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let (ended, watched) = mpsc::channel::<()>();
        let watcher = thread::spawn(move || {
            let is_late = watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                // The group may have ended by itself.
                let _ = killpg(pid, Signal::SIGKILL);
            }
            is_late
        });
        let output = child.wait_with_output();
        drop(ended);
        let is_late = watcher.join().is_ok_and(|is_late| is_late);
        self.ended(pid)?;
        Ok((!is_late).then_some(output?))
    }

    /// Runs a program to its end.
    pub(crate) fn run_for_status(&self, command: &mut Command) -> Result<ExitStatus> {
        let (mut child, pid) = self.start(command)?;
        let status = child.wait();
        self.ended(pid)?;
        Ok(status?)
    }

    /// Starts a program in a process group of its own, so that a stop reaches its children too.
    fn start(&self, command: &mut Command) -> Result<(Child, Pid)> {
        // The lock is held from the check until the process is listed: a signal in between would
        // not reach it.
        let mut foreground = self.lock_foreground();
        self.check()?;
        let child = command.process_group(0).spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        foreground.push(pid);
        Ok((child, pid))
    }

    fn ended(&self, pid: Pid) -> Result<()> {
        self.lock_foreground().retain(|other| *other != pid);
        self.check()
    }

    fn stop_foreground(&self) {
        // The flag is set before the lock is taken: a start that has the lock is listed below, and
        // a later one fails its check.
        self.caught.store(true, Ordering::SeqCst);
        say("stopping");
        for group in self.lock_foreground().iter() {
            // The group may have ended by itself.
            let _ = killpg(*group, Signal::SIGTERM);
        }
    }

    fn lock_foreground(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.foreground.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command as a person would type it.
fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ended_at_the_limit() {
        let interrupts = Interrupts { caught: Arc::default(), foreground: Arc::default() };
        let run = |words: &str, limit| {
            interrupts.output_within(Command::new("sh").args(["-c", words]), limit).unwrap()
        };
        let output = run("echo done; exit 3", Duration::from_secs(600)).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"done\n"[..]));
        assert!(run("sleep 600 & wait", Duration::from_millis(50)).is_none());
    }
}
