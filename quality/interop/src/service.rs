//! A service with a real client in it: a process that gets one command a line.
//!
//! The words of both sides are in `java/src/main/java/handfast/interop/Worker.java`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use handfast_test_services::PipedProcess;

use crate::wait::until;

/// A client gives a request up after half a minute, and asks a few times.
const ANSWERED_WITHIN: Duration = Duration::from_secs(100);

/// How long a command is watched that must not be answered.
const STILL: Duration = Duration::from_millis(300);

/// The answer to a command, or the words of its failure.
pub(crate) type Said = Result<String, String>;
type Waiting = Arc<Mutex<HashMap<u64, Sender<Said>>>>;

/// A running service. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Service {
    process: Mutex<PipedProcess>,
    stdin: Mutex<ChildStdin>,
    waiting: Waiting,
    id_last: AtomicU64,
}

impl Service {
    /// Starts it, and waits until it listens to commands.
    pub(crate) fn start(command: Command, log: &Path) -> Result<Self> {
        let (process, (stdin, stdout)) = PipedProcess::start(command, log)?;
        let mut lines = BufReader::new(stdout);
        let mut first = String::new();
        lines.read_line(&mut first)?;
        if first.trim() != "ready" {
            bail!("the service does not start, see {}", log.display());
        }
        let waiting = Waiting::default();
        read_answers(lines, &waiting);
        let (process, stdin) = (Mutex::new(process), Mutex::new(stdin));
        Ok(Self { process, stdin, waiting, id_last: AtomicU64::new(0) })
    }

    /// A thread of it that has done nothing yet.
    pub(crate) fn actor(&self) -> Actor<'_> {
        Actor { service: self, name: self.next_id() }
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&self) -> Result<()> {
        lock(&self.process).kill()
    }

    /// Stops it where it is.
    pub(crate) fn pause(&self) -> Result<()> {
        lock(&self.process).pause()
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) -> Result<()> {
        lock(&self.process).go_on()
    }

    fn next_id(&self) -> u64 {
        self.id_last.fetch_add(1, Ordering::Relaxed)
    }
}

/// A thread of a service, in one global at a time.
#[derive(Debug)]
pub(crate) struct Actor<'a> {
    service: &'a Service,
    name: u64,
}

impl Actor<'_> {
    /// Says a command without waiting for the answer.
    pub(crate) fn ask(&self, command: &str) -> Result<PendingCommand> {
        let id = self.service.next_id();
        let (told, answer) = channel();
        lock(&self.service.waiting).insert(id, told);
        writeln!(lock(&self.service.stdin), "{id} {} {command}", self.name)
            .context("the service has ended")?;
        Ok(PendingCommand { command: command.to_owned(), answer })
    }

    /// Says a command that must succeed.
    pub(crate) fn tell(&self, command: &str) -> Result<String> {
        self.ask(command)?.done()
    }

    /// Begins a global, and returns its XID.
    pub(crate) fn begin(&self, timeout_ms: u32) -> Result<String> {
        self.tell(&format!("begin {timeout_ms}"))
    }

    /// Repeats a command until it succeeds: a client that has lost the coordinator may need some
    /// seconds to find it again.
    pub(crate) fn tell_until_done(&self, command: &str) -> Result<String> {
        let mut done = String::new();
        until(command, || {
            let said = self.ask(command)?.said()?;
            Ok(said.map(|it| done = it).is_ok())
        })?;
        Ok(done)
    }

    /// Joins a global that another service began.
    pub(crate) fn join(&self, xid: &str) -> Result<()> {
        self.tell(&format!("join {xid}")).map(drop)
    }

    /// Leaves the global.
    pub(crate) fn leave(&self) -> Result<()> {
        self.tell("leave").map(drop)
    }
}

/// A command whose answer has not been read.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    command: String,
    answer: Receiver<Said>,
}

impl PendingCommand {
    /// Waits for its success.
    pub(crate) fn done(self) -> Result<String> {
        let command = self.command.clone();
        self.said()?.map_err(|error| anyhow!("{command}: {error}"))
    }

    /// Waits for its failure, and returns the service's message.
    pub(crate) fn failed(self) -> Result<String> {
        let command = self.command.clone();
        match self.said()? {
            Ok(result) => bail!("{command}: must fail, gave {result:?}"),
            Err(error) => Ok(error),
        }
    }

    /// Waits for either end, and tells whether it is success.
    pub(crate) fn has_succeeded(self) -> Result<bool> {
        Ok(self.said()?.is_ok())
    }

    /// Fails if it is answered within a moment.
    pub(crate) fn must_wait(&self) -> Result<()> {
        match self.answer.recv_timeout(STILL) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            other => bail!("{}: must wait, gave {other:?}", self.command),
        }
    }

    /// Waits for either end.
    pub(crate) fn said(self) -> Result<Said> {
        let said = self.answer.recv_timeout(ANSWERED_WITHIN);
        said.with_context(|| format!("{}: no answer", self.command))
    }
}

/// Hands each answer to the command that waits for it, until the service ends.
fn read_answers(lines: BufReader<ChildStdout>, waiting: &Waiting) {
    let waiting = Arc::clone(waiting);
    thread::spawn(move || {
        for line in lines.lines().map_while(std::io::Result::ok) {
            let mut words = line.splitn(3, ' ');
            let (id, kind, text) = (words.next(), words.next(), words.next().unwrap_or_default());
            let id = id.and_then(|id| id.parse().ok());
            let Some(told) = id.and_then(|id| lock(&waiting).remove(&id)) else { continue };
            let said = if kind == Some("ok") { Ok(text.to_owned()) } else { Err(text.to_owned()) };
            // The command may have been dropped.
            let _ = told.send(said);
        }
        // A command that still waits sees the end of its channel.
        lock(&waiting).clear();
    });
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
